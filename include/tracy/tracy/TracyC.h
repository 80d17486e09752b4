/*
 * Tracy's C interface, recorded by Tompion. Programs include this header in place of Tracy's:
 *
 *     cc -c game.c $(pkg-config --cflags tompion-tracy)
 *
 * docs/design/marks.md says what becomes of each mark. Names are those of Tracy's interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TRACY_C_H
#define TOMPION_TRACY_C_H

#pragma GCC system_header

#include <string.h>

#include "private/library.h"

typedef struct tompion_tracy_zone TracyCZoneCtx;
typedef const void *TracyCLockCtx;
typedef const void *TracyCSharedLockCtx;

enum TracyPlotFormatEnum {
    TracyPlotFormatNumber,
    TracyPlotFormatMemory,
    TracyPlotFormatPercentage,
    TracyPlotFormatWatt
};

#ifdef __cplusplus
extern "C" {
#endif
__attribute__((__format__(__printf__, 1, 2), __unused__)) static void tompion_tracy_text_of(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tompion_tracy_zone_format(0, format, arguments);
    va_end(arguments);
}
__attribute__((__format__(__printf__, 1, 2), __unused__)) static void tompion_tracy_name_of(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tompion_tracy_zone_format(1, format, arguments);
    va_end(arguments);
}
#ifdef __cplusplus
}
#endif

#define TracyCIsStarted 1
#define TracyCIsConnected tompion_tracy_is_recorded()

/* -- Zones -- */

/* The function's name is no constant, but its address is known while the function runs. */
#define TOMPION_TRACY_C_ZONE(ctx, name, color, active)                                                \
    TOMPION_TRACY_SOURCE(name, 0, color);                                                             \
    TracyCZoneCtx ctx;                                                                                \
    if (!TOMPION_TRACY_THIS_SOURCE->function)                                                         \
        TOMPION_TRACY_THIS_SOURCE->function = __func__;                                               \
    ctx = tompion_tracy_zone_begin(TOMPION_TRACY_THIS_SOURCE, active)
#define TracyCZone(ctx, active) TOMPION_TRACY_C_ZONE(ctx, 0, 0, active)
#define TracyCZoneN(ctx, name, active) TOMPION_TRACY_C_ZONE(ctx, name, 0, active)
#define TracyCZoneC(ctx, color, active) TOMPION_TRACY_C_ZONE(ctx, 0, color, active)
#define TracyCZoneNC(ctx, name, color, active) TOMPION_TRACY_C_ZONE(ctx, name, color, active)
#define TracyCZoneS(ctx, depth, active) TracyCZone(ctx, active)
#define TracyCZoneNS(ctx, name, depth, active) TracyCZoneN(ctx, name, active)
#define TracyCZoneCS(ctx, color, depth, active) TracyCZoneC(ctx, color, active)
#define TracyCZoneNCS(ctx, name, color, depth, active) TracyCZoneNC(ctx, name, color, active)
#define TracyCZoneEnd(ctx) tompion_tracy_zone_end(ctx);

#define TracyCZoneText(ctx, text, size) ((void)((ctx).recordings ? tompion_tracy_zone_text(text, size) : (void)0))
#define TracyCZoneName(ctx, text, size) ((void)((ctx).recordings ? tompion_tracy_zone_name(text, size) : (void)0))
#define TracyCZoneColor(ctx, color) ((void)((ctx).recordings ? tompion_tracy_zone_color(color) : (void)0))
#define TracyCZoneValue(ctx, value) ((void)((ctx).recordings ? tompion_tracy_zone_value(value) : (void)0))
#define TracyCZoneTextF(ctx, ...) ((void)((ctx).recordings ? tompion_tracy_text_of(__VA_ARGS__) : (void)0))
#define TracyCZoneNameF(ctx, ...) ((void)((ctx).recordings ? tompion_tracy_name_of(__VA_ARGS__) : (void)0))

/* -- Frames, plots, messages, memory -- */

#define TracyCFrameMark tompion_tracy_frame(0);
#define TracyCFrameMarkNamed(name) tompion_tracy_frame(name);
#define TracyCFrameMarkStart(name) tompion_tracy_frame_start(name);
#define TracyCFrameMarkEnd(name) tompion_tracy_frame_end(name);
#define TracyCFrameImage(image, width, height, offset, flip) ((void)(image))

#define TracyCPlot(name, value) tompion_tracy_plot_f64(name, value);
#define TracyCPlotF(name, value) tompion_tracy_plot_f64(name, (double)(value));
#define TracyCPlotI(name, value) tompion_tracy_plot_i64(name, value);
#define TracyCPlotConfig(name, type, step, fill, color) ((void)(name))

#define TracyCMessage(text, size) tompion_tracy_message(text, size, 0);
#define TracyCMessageL(text) tompion_tracy_message(text, strlen(text), 0);
#define TracyCMessageC(text, size, color) tompion_tracy_message(text, size, color);
#define TracyCMessageLC(text, color) tompion_tracy_message(text, strlen(text), color);
#define TracyCMessageS(text, size, depth) TracyCMessage(text, size)
#define TracyCMessageLS(text, depth) TracyCMessageL(text)
#define TracyCMessageCS(text, size, color, depth) TracyCMessageC(text, size, color)
#define TracyCMessageLCS(text, color, depth) TracyCMessageLC(text, color)
#define TracyCAppInfo(text, size) tompion_tracy_app_info(text, size);

#define TracyCAlloc(pointer, size) tompion_tracy_alloc(pointer, size, "")
#define TracyCFree(pointer) tompion_tracy_free(pointer, "")
#define TracyCAllocN(pointer, size, name) tompion_tracy_alloc(pointer, size, name)
#define TracyCFreeN(pointer, name) tompion_tracy_free(pointer, name)
#define TracyCMemoryDiscard(name) tompion_tracy_discard(name)
#define TracyCAllocS(pointer, size, depth) TracyCAlloc(pointer, size)
#define TracyCFreeS(pointer, depth) TracyCFree(pointer)
#define TracyCAllocNS(pointer, size, depth, name) TracyCAllocN(pointer, size, name)
#define TracyCFreeNS(pointer, depth, name) TracyCFreeN(pointer, name)
#define TracyCMemoryDiscardS(name, depth) TracyCMemoryDiscard(name)

/* -- Locks -- */

/* Each lock that passes here is one of its own. */
#define TracyCLockAnnounce(lock) lock = tompion_tracy_announce_lock(#lock);
#define TracyCLockTerminate(lock) ((void)(lock))
#define TracyCLockBeforeLock(lock) tompion_tracy_lock(lock, tompion_tracy_WAIT);
#define TracyCLockAfterLock(lock) tompion_tracy_lock(lock, tompion_tracy_ACQUIRED);
#define TracyCLockAfterUnlock(lock) tompion_tracy_lock(lock, tompion_tracy_RELEASED);
#define TracyCLockAfterTryLock(lock, acquired) \
    ((void)((acquired) ? tompion_tracy_lock(lock, tompion_tracy_ACQUIRED) : (void)0))
#define TracyCLockMark(lock) ((void)(lock))
#define TracyCLockCustomName(lock, name, size) tompion_tracy_lock_named(lock, name, size);
/* Tracy's own spelling, and the one that a reader expects. */
#define TracyCSharedLockAnnonce(lock) lock = tompion_tracy_announce_lock(#lock);
#define TracyCSharedLockAnnounce(lock) lock = tompion_tracy_announce_lock(#lock);
#define TracyCSharedLockTerminate(lock) ((void)(lock))
#define TracyCSharedLockBeforeLock(lock) TracyCLockBeforeLock(lock)
#define TracyCSharedLockAfterLock(lock) TracyCLockAfterLock(lock)
#define TracyCSharedLockAfterUnlock(lock) TracyCLockAfterUnlock(lock)
#define TracyCSharedLockAfterTryLock(lock, acquired) TracyCLockAfterTryLock(lock, acquired)
#define TracyCSharedLockBeforeSharedLock(lock) tompion_tracy_lock(lock, tompion_tracy_WAIT_SHARED);
#define TracyCSharedLockAfterSharedLock(lock) tompion_tracy_lock(lock, tompion_tracy_ACQUIRED_SHARED);
#define TracyCSharedLockAfterSharedUnlock(lock) tompion_tracy_lock(lock, tompion_tracy_RELEASED_SHARED);
#define TracyCSharedLockAfterTrySharedLock(lock, acquired) \
    ((void)((acquired) ? tompion_tracy_lock(lock, tompion_tracy_ACQUIRED_SHARED) : (void)0))
#define TracyCSharedLockMark(lock) ((void)(lock))
#define TracyCSharedLockCustomName(lock, name, size) tompion_tracy_lock_named(lock, name, size);

/* -- Fibers, threads -- */

#define TracyCSetThreadName(name) tompion_tracy_thread_name(name);

#define TracyCFiberEnter(fiber) tompion_tracy_fiber_enter(fiber);
#define TracyCFiberLeave tompion_tracy_fiber_leave();

#endif
