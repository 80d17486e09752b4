// The shared library's part in C++.
#include "shared.h"

namespace {
struct Life {
    Life()
    {
        TOMPION_EVENT(shared, static_made);
        state("shared:static_made", "");
    }
    ~Life()
    {
        TOMPION_EVENT(shared, static_gone);
        state("shared:static_gone", "");
    }
} life;
} // namespace

void shared_cxx()
{
    shared_inline(2);
    shared_template(2);
    shared_template('c');
    shared_base base;
}
