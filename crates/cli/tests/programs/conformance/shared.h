// Inline code that the program and its shared library both have: the linker and the loader choose
// one copy.
#ifndef SHARED_H
#define SHARED_H

#include "state.h"

#include <string>

// How a value is shown.
inline std::string text_of(double value)
{
    char text[40];
    snprintf(text, sizeof text, "%g", value);
    return text;
}
inline std::string text_of(const char *value)
{
    return "\"" + std::string(value) + "\"";
}

inline int shared_inline(int number)
{
    TOMPION_SPAN(shared, inline_, (i32, number, number));
    state("shared:inline__begin", ("\"number\":" + text_of(number)).c_str());
    state("shared:inline__end", "");
    return number;
}

template <class T> T shared_template(T value)
{
    TOMPION_EVENT(shared, template_, (u64, size, sizeof(T)));
    state("shared:template_", ("\"size\":" + text_of(sizeof(T))).c_str());
    return value;
}

struct shared_base {
    virtual ~shared_base()
    {
        TOMPION_EVENT(shared, base_gone);
        state("shared:base_gone", "");
    }
};

VISIBLE void shared_cxx();

#endif
