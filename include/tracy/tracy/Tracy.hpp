/*
 * Tracy's C++ interface, recorded by Tompion. Programs include this header in place of Tracy's:
 *
 *     c++ -c game.cpp $(pkg-config --cflags tompion-tracy)
 *
 * C++11 and later. docs/design/marks.md says what becomes of each mark. Names are those of Tracy's
 * interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TRACY_HPP
#define TOMPION_TRACY_HPP

#pragma GCC system_header

#include <string.h>

#include <type_traits>
#include <utility>

#include "private/library.h"

#ifndef TracyFunction
#define TracyFunction __FUNCTION__
#endif

namespace tracy {

enum class PlotFormatType : uint8_t { Number, Memory, Percentage, Watt };

/* A zone of a scope. */
class ScopedZone {
    tompion_tracy_zone zone;

  public:
    explicit ScopedZone(tompion_tracy_source *source, bool active = true)
        : zone(tompion_tracy_zone_begin(source, active))
    {
    }
    ScopedZone(const char *name, size_t size, uint32_t color, bool active)
        : zone(active ? tompion_tracy_begin_transient(name, size, color) : tompion_tracy_zone())
    {
    }
    ~ScopedZone() { tompion_tracy_zone_end(zone); }
    ScopedZone(const ScopedZone &) = delete;
    ScopedZone &operator=(const ScopedZone &) = delete;

    void Text(const char *text, size_t size) const
    {
        if (zone.recordings)
            tompion_tracy_zone_text(text, size);
    }
    void Name(const char *name, size_t size) const
    {
        if (zone.recordings)
            tompion_tracy_zone_name(name, size);
    }
    void Color(uint32_t color) const
    {
        if (zone.recordings)
            tompion_tracy_zone_color(color);
    }
    void Value(uint64_t value) const
    {
        if (zone.recordings)
            tompion_tracy_zone_value(value);
    }
    __attribute__((__format__(__printf__, 2, 3))) void TextFmt(const char *format, ...) const
    {
        va_list arguments;
        va_start(arguments, format);
        if (zone.recordings)
            tompion_tracy_zone_format(0, format, arguments);
        va_end(arguments);
    }
    __attribute__((__format__(__printf__, 2, 3))) void NameFmt(const char *format, ...) const
    {
        va_list arguments;
        va_start(arguments, format);
        if (zone.recordings)
            tompion_tracy_zone_format(1, format, arguments);
        va_end(arguments);
    }
    bool IsActive() const { return zone.active != 0; }
};

/* A mutex that says when threads wait for it, have it, and release it. */
template <class T> class Lockable {
  protected:
    T lock_;

  public:
    explicit Lockable(const tompion_tracy_source *source) { CustomName(source->name, strlen(source->name)); }
    Lockable(const Lockable &) = delete;
    Lockable &operator=(const Lockable &) = delete;

    void lock()
    {
        tompion_tracy_lock(this, tompion_tracy_WAIT);
        lock_.lock();
        tompion_tracy_lock(this, tompion_tracy_ACQUIRED);
    }
    void unlock()
    {
        lock_.unlock();
        tompion_tracy_lock(this, tompion_tracy_RELEASED);
    }
    bool try_lock()
    {
        const bool acquired = lock_.try_lock();
        if (acquired)
            tompion_tracy_lock(this, tompion_tracy_ACQUIRED);
        return acquired;
    }
    void Mark(const tompion_tracy_source *) const {}
    void CustomName(const char *name, size_t size) const { tompion_tracy_lock_named(this, name, size); }
};

/* The same with readers. */
template <class T> class SharedLockable : public Lockable<T> {
  public:
    explicit SharedLockable(const tompion_tracy_source *source) : Lockable<T>(source) {}

    void lock_shared()
    {
        tompion_tracy_lock(this, tompion_tracy_WAIT_SHARED);
        this->lock_.lock_shared();
        tompion_tracy_lock(this, tompion_tracy_ACQUIRED_SHARED);
    }
    void unlock_shared()
    {
        this->lock_.unlock_shared();
        tompion_tracy_lock(this, tompion_tracy_RELEASED_SHARED);
    }
    bool try_lock_shared()
    {
        const bool acquired = this->lock_.try_lock_shared();
        if (acquired)
            tompion_tracy_lock(this, tompion_tracy_ACQUIRED_SHARED);
        return acquired;
    }
};

template <class T>
inline typename std::enable_if<std::is_floating_point<T>::value>::type tompion_plot(const char *name, T value)
{
    tompion_tracy_plot_f64(name, static_cast<double>(value));
}
template <class T>
inline typename std::enable_if<!std::is_floating_point<T>::value>::type tompion_plot(const char *name, T value)
{
    tompion_tracy_plot_i64(name, static_cast<int64_t>(value));
}

inline void SetThreadName(const char *name) { tompion_tracy_thread_name(name); }
inline void SetThreadNameWithHint(const char *name, int32_t) { tompion_tracy_thread_name(name); }

enum class MessageSeverity : uint8_t { Trace, Debug, Info, Warning, Error, Fatal };

inline void tompion_log(uint32_t color, size_t size, const char *text)
{
    tompion_tracy_message(text, size, color);
}
inline void tompion_log(uint32_t color, const char *text)
{
    tompion_tracy_message(text, strlen(text), color);
}

} /* namespace tracy */

#define TracyNoop
#define TracyIsConnected (tompion_tracy_is_recorded() != 0)
#define TracyIsStarted true
#define TracySetProgramName(name) ((void)(name))

/* -- Zones -- */

#define TOMPION_TRACY_ZONE(variable, name, color, active)                                             \
    TOMPION_TRACY_SOURCE(name, TracyFunction, color);                                                 \
    const ::tracy::ScopedZone variable(TOMPION_TRACY_THIS_SOURCE, active)
#define ZoneNamed(variable, active) TOMPION_TRACY_ZONE(variable, nullptr, 0, active)
#define ZoneNamedN(variable, name, active) TOMPION_TRACY_ZONE(variable, name, 0, active)
#define ZoneNamedC(variable, color, active) TOMPION_TRACY_ZONE(variable, nullptr, color, active)
#define ZoneNamedNC(variable, name, color, active) TOMPION_TRACY_ZONE(variable, name, color, active)
#define ZoneTransient(variable, active) \
    const ::tracy::ScopedZone variable(TracyFunction, strlen(TracyFunction), 0, active)
#define ZoneTransientN(variable, name, active) \
    const ::tracy::ScopedZone variable(name, strlen(name), 0, active)
#define ZoneTransientNC(variable, name, color, active) \
    const ::tracy::ScopedZone variable(name, strlen(name), color, active)
#define ZoneScoped ZoneNamed(___tracy_scoped_zone, true)
#define ZoneScopedN(name) ZoneNamedN(___tracy_scoped_zone, name, true)
#define ZoneScopedC(color) ZoneNamedC(___tracy_scoped_zone, color, true)
#define ZoneScopedNC(name, color) ZoneNamedNC(___tracy_scoped_zone, name, color, true)

#define ZoneNamedS(variable, depth, active) ZoneNamed(variable, active)
#define ZoneNamedNS(variable, name, depth, active) ZoneNamedN(variable, name, active)
#define ZoneNamedCS(variable, color, depth, active) ZoneNamedC(variable, color, active)
#define ZoneNamedNCS(variable, name, color, depth, active) ZoneNamedNC(variable, name, color, active)
#define ZoneTransientS(variable, depth, active) ZoneTransient(variable, active)
#define ZoneTransientNS(variable, name, depth, active) ZoneTransientN(variable, name, active)
#define ZoneScopedS(depth) ZoneScoped
#define ZoneScopedNS(name, depth) ZoneScopedN(name)
#define ZoneScopedCS(color, depth) ZoneScopedC(color)
#define ZoneScopedNCS(name, color, depth) ZoneScopedNC(name, color)

#define ZoneText(text, size) ___tracy_scoped_zone.Text(text, size)
#define ZoneTextV(variable, text, size) variable.Text(text, size)
#define ZoneTextF(...) ___tracy_scoped_zone.TextFmt(__VA_ARGS__)
#define ZoneTextVF(variable, ...) variable.TextFmt(__VA_ARGS__)
#define ZoneName(text, size) ___tracy_scoped_zone.Name(text, size)
#define ZoneNameV(variable, text, size) variable.Name(text, size)
#define ZoneNameF(...) ___tracy_scoped_zone.NameFmt(__VA_ARGS__)
#define ZoneNameVF(variable, ...) variable.NameFmt(__VA_ARGS__)
#define ZoneColor(color) ___tracy_scoped_zone.Color(color)
#define ZoneColorV(variable, color) variable.Color(color)
#define ZoneValue(value) ___tracy_scoped_zone.Value(static_cast<uint64_t>(value))
#define ZoneValueV(variable, value) variable.Value(static_cast<uint64_t>(value))
#define ZoneIsActive ___tracy_scoped_zone.IsActive()
#define ZoneIsActiveV(variable) variable.IsActive()

/* -- Frames, plots, messages, memory -- */

#define FrameMark tompion_tracy_frame(nullptr)
#define FrameMarkNamed(name) tompion_tracy_frame(name)
#define FrameMarkStart(name) tompion_tracy_frame_start(name)
#define FrameMarkEnd(name) tompion_tracy_frame_end(name)
#define FrameImage(image, width, height, offset, flip) ((void)(image))

#define TracyPlot(name, value) ::tracy::tompion_plot(name, value)
#define TracyPlotConfig(name, type, step, fill, color) ((void)(name))

#define TracyMessage(text, size) tompion_tracy_message(text, size, 0)
#define TracyMessageL(text) tompion_tracy_message(text, strlen(text), 0)
#define TracyMessageC(text, size, color) tompion_tracy_message(text, size, color)
#define TracyMessageLC(text, color) tompion_tracy_message(text, strlen(text), color)
#define TracyMessageS(text, size, depth) TracyMessage(text, size)
#define TracyMessageLS(text, depth) TracyMessageL(text)
#define TracyMessageCS(text, size, color, depth) TracyMessageC(text, size, color)
#define TracyMessageLCS(text, color, depth) TracyMessageLC(text, color)
/* The text, or its size and it. */
#define TracyLogString(severity, color, depth, ...) \
    ((void)(severity), (void)(depth), ::tracy::tompion_log(static_cast<uint32_t>(color), __VA_ARGS__))
#define TracyAppInfo(text, size) tompion_tracy_app_info(text, size)

#define TracyAlloc(pointer, size) tompion_tracy_alloc(pointer, size, "")
#define TracyFree(pointer) tompion_tracy_free(pointer, "")
#define TracyAllocN(pointer, size, name) tompion_tracy_alloc(pointer, size, name)
#define TracyFreeN(pointer, name) tompion_tracy_free(pointer, name)
#define TracyMemoryDiscard(name) tompion_tracy_discard(name)
#define TracySecureAlloc(pointer, size) TracyAlloc(pointer, size)
#define TracySecureFree(pointer) TracyFree(pointer)
#define TracyAllocS(pointer, size, depth) TracyAlloc(pointer, size)
#define TracyFreeS(pointer, depth) TracyFree(pointer)
#define TracyAllocNS(pointer, size, depth, name) TracyAllocN(pointer, size, name)
#define TracyFreeNS(pointer, depth, name) TracyFreeN(pointer, name)
#define TracyMemoryDiscardS(name, depth) TracyMemoryDiscard(name)

/* -- Locks -- */

#define TOMPION_TRACY_LOCK(text)                                                                      \
    [] {                                                                                              \
        TOMPION_TRACY_SOURCE(text, "", 0);                                                            \
        return TOMPION_TRACY_THIS_SOURCE;                                                             \
    }()
#define TracyLockable(type, variable) ::tracy::Lockable<type> variable{TOMPION_TRACY_LOCK(#type " " #variable)}
#define TracyLockableN(type, variable, text) ::tracy::Lockable<type> variable{TOMPION_TRACY_LOCK(text)}
#define TracySharedLockable(type, variable) \
    ::tracy::SharedLockable<type> variable{TOMPION_TRACY_LOCK(#type " " #variable)}
#define TracySharedLockableN(type, variable, text) \
    ::tracy::SharedLockable<type> variable{TOMPION_TRACY_LOCK(text)}
#define LockableBase(type) ::tracy::Lockable<type>
#define SharedLockableBase(type) ::tracy::SharedLockable<type>
#define LockMark(variable) ((void)(variable))
#define LockableName(variable, text, size) variable.CustomName(text, size)

/* -- Fibers, and what Tompion does not have -- */

#define TracyFiberEnter(fiber) tompion_tracy_fiber_enter(fiber)
#define TracyFiberEnterHint(fiber, hint) tompion_tracy_fiber_enter(fiber)
#define TracyFiberLeave tompion_tracy_fiber_leave()
#define TracySourceCallbackRegister(callback, data)
#define TracySectionEnter(name) ((void)(name), static_cast<uint16_t>(0))
#define TracySectionLeave(section) ((void)(section))
#define TracyParameterRegister(callback, data)
#define TracyParameterSetup(index, name, type, value)

#endif
