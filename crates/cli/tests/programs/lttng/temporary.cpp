// Fields that are temporaries, in templates, lambdas and inline functions.
#define TRACEPOINT_CREATE_PROBES
#define TRACEPOINT_DEFINE
#include "temporary.h"

#include <thread>

template <class T> void in_template(T value)
{
    tracepoint(temporary, made, static_cast<int>(value), std::string(30, 'a' + static_cast<char>(value)));
}

inline void in_inline_function()
{
    tracepoint(temporary, made, 2, "inline");
}

int main()
{
    in_template(0);
    in_template(1L);
    in_inline_function();
    [] { tracepoint(temporary, made, 3, std::string("lambda")); }();
    std::thread([] { tracepoint(temporary, made, 4, "thread"); }).join();
    return tracepoint_enabled(temporary, made) ? 0 : 1;
}
