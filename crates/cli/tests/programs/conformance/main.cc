// What only C++ has, and the program around all the rest.
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "shared.h"

namespace app {

TOMPION_ENUM(color, (red, 0), (green, 1));
enum class Color : unsigned char { red, green };
enum Plain { plain_zero, plain_one };

inline std::string quoted(const std::string &text)
{
    return "\"" + text + "\"";
}

struct Life {
    const char *name;
    explicit Life(const char *given) : name(given)
    {
        TOMPION_EVENT(life, made, (str, name, name));
        state("life:made", ("\"name\":" + text_of(name)).c_str());
    }
    ~Life()
    {
        TOMPION_EVENT(life, gone, (str, name, this->name));
        state("life:gone", ("\"name\":" + text_of(name)).c_str());
    }
};

static Life global("global");
inline Life inline_variable("inline variable");

// The description knows how many elements: each instance has its own.
template <unsigned char N, class T> T sized(T value)
{
    unsigned char list[N] = {N};
    TOMPION_SPAN(app, sized, (array, list, u8, list, N));
    std::string expected = "\"list\":[" + text_of(N);
    for (unsigned i = 1; i < N; i++)
        expected += ",0";
    state("app:sized_begin", (expected + "]").c_str());
    TOMPION_COUNTER(app, sized, value);
    state("app:sized", ("\"value\":" + text_of(static_cast<double>(value))).c_str());
    TOMPION_MARK(sized, "size %zu value %d", sizeof(T), static_cast<int>(value));
    state("mark:sized", ("\"size\":" + text_of(sizeof(T)) + ",\"value\":" + text_of(static_cast<int>(value))).c_str());
    state("app:sized_end", "");
    return value;
}

template <class... T> void all_of(T... values)
{
    (sized<2>(values), ...);
}

class Machine {
    int number = 7;
    unsigned bits : 3;
    unsigned char mac[2] = {1, 2};
    std::string name = "machine";
    static const int constant = 5;

    std::string make() const
    {
        return "a text that no small string holds, made for " + name;
    }

    template <class Outer> void nest(Outer outer)
    {
        [&](auto value) {
            TOMPION_EVENT(app, nested, (f64, outer, outer), (i32, value, value));
            state("app:nested", ("\"outer\":" + text_of(outer) + ",\"value\":" + text_of(value)).c_str());
        }(3);
    }

  public:
    Machine() : bits(5) {}
    void run()
    {
        TOMPION_EVENT(app, member, (i32, number, number), (i32, same, this->number), (u8, bits, bits),
                      (array, mac, u8, mac, sizeof(mac)), (str, name, name),
                      (str, view, std::string_view("view of more", 4)), (str, made, make()),
                      (str, also, make().c_str()), (str, none, nullptr), (u8, constant, constant),
                      (enum_u8, color, color, Color::green), (i32, plain, plain_one),
                      (sequence, empty, u32, nullptr, 3), (struct, inner, (str, name, name)));
        state("app:member",
              ("\"number\":7,\"same\":7,\"bits\":5,\"mac\":[1,2],\"name\":\"machine\",\"view\":\"view\",\"made\":" +
               quoted(make()) + ",\"also\":" + quoted(make()) +
               ",\"none\":\"(null)\",\"constant\":5,\"color\":{\"value\":1,\"labels\":[\"green\"]},\"plain\":1,"
               "\"_empty_length\":0,\"empty\":[],\"inner\":{\"name\":\"machine\"}")
                  .c_str());
        TOMPION_MARK(member, "number %d of %s bits %u", this->number, make().c_str(), bits);
        state("mark:member", ("\"number\":7,\"of\":" + quoted(make()) + ",\"bits\":5").c_str());
        TOMPION_COUNTER(app, twice, number * 2);
        state("app:twice", "\"value\":14");
        auto lambda = [this, factor = 3](auto value) {
            TOMPION_SPAN(app, lambda, (i32, number, number * factor));
            state("app:lambda_begin", "\"number\":21");
            TOMPION_EVENT(app, generic, (f64, value, value), (u64, size, sizeof value));
            state("app:generic", ("\"value\":" + text_of(value) + ",\"size\":" + text_of(sizeof value)).c_str());
            state("app:lambda_end", "");
            return number;
        };
        lambda(1.5f);
        lambda(2.5);
        nest(0.5f);
        nest(1.5);
        [] {
            TOMPION_EVENT(app, bare_lambda);
            state("app:bare_lambda", "");
        }();
    }
};

constexpr int twice(int number)
{
    TOMPION_EVENT(app, in_constexpr, (i32, number, number));
    TOMPION_COUNTER(app, constexpr_count, number);
    TOMPION_MARK(in_constexpr, "number %d", number);
    return number * 2;
}
static_assert(twice(2) == 4, "events do not keep a function from the compiler");

void fail()
{
    TOMPION_SPAN(app, fails, (str, why, "test"));
    TOMPION_JOB(app, job, 5);
    state("app:fails_begin", "\"why\":\"test\"");
    state("app:job_begin", "\"deadline_ns\":5");
    throw std::runtime_error("test");
}

int refuse()
{
    throw std::runtime_error("no value");
}

void exceptions()
{
    try {
        fail();
    } catch (const std::runtime_error &) {
        state("app:job_end", "");
        state("app:fails_end", "");
        TOMPION_EVENT(app, caught);
        state("app:caught", "");
    }
    // An event whose value throws is not recorded.
    if (TOMPION_EVENT_ENABLED(app, thrown)) {
        try {
            TOMPION_EVENT(app, thrown, (i32, number, refuse()));
            std::abort();
        } catch (const std::runtime_error &) {
        }
    }
}

void threads()
{
    // One after the other, so that the order is known.
    for (int number = 0; number < 3; number++) {
        std::thread([number] {
            static thread_local Life local("thread");
            TOMPION_EVENT(app, thread, (i32, number, number));
            state("app:thread", ("\"number\":" + text_of(number)).c_str());
            (void)local;
        }).join();
    }
}

struct Derived : shared_base {
    ~Derived() override
    {
        TOMPION_EVENT(app, derived_gone);
        state("app:derived_gone", "");
    }
};

void at_exit()
{
    TOMPION_EVENT(life, at_exit);
    state("life:at_exit", "");
}

} // namespace app

int main()
{
    static app::Life local("local static");
    std::atexit(app::at_exit);
    every_c();
    every_cxx();
    part_executable();
    part_static_library();
    part_shared_library();
    app::all_of(1, 2.5, 3u, static_cast<unsigned char>(4));
    app::sized<3>(-1L);
    app::Machine().run();
    app::twice(std::rand() ? 4 : 4);
    state("app:in_constexpr", "\"number\":4");
    state("app:constexpr_count", "\"value\":4");
    state("mark:in_constexpr", "\"number\":4");
    app::exceptions();
    app::threads();
    shared_inline(1);
    shared_template(1L);
    shared_template('c');
    std::unique_ptr<shared_base>(std::make_unique<app::Derived>()).reset();
    shared_cxx();
    return 0;
}
