/* A plugin with a thousand events. */
#include <tompion/tompion.h>

#define EVENT(n)                                                                                        \
    void limited_event_##n(int value);                                                                   \
    void limited_event_##n(int value)                                                                    \
    {                                                                                                   \
        EVENT_OF(event_with_a_long_name_that_has_to_be_noted_##n);                                      \
    }
#define EVENT_OF(name) \
    TOMPION_EVENT(limited, name, (i32, a_field_with_a_long_name, value), (i32, another_such_field, value))

#define TEN(n)                                                                                          \
    EVENT(n##0)                                                                                         \
    EVENT(n##1)                                                                                         \
    EVENT(n##2)                                                                                         \
    EVENT(n##3)                                                                                         \
    EVENT(n##4) EVENT(n##5) EVENT(n##6) EVENT(n##7) EVENT(n##8) EVENT(n##9)
#define HUNDRED(n) \
    TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)

HUNDRED(0)
HUNDRED(1)
HUNDRED(2)
HUNDRED(3)
HUNDRED(4)
HUNDRED(5)
HUNDRED(6)
HUNDRED(7)
HUNDRED(8)
HUNDRED(9)
