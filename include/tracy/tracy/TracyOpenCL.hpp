/*
 * Tracy's marks of OpenCL. Tompion does not record them: programs compile, and the marks have
 * no effect. Arguments are not evaluated. Names are those of Tracy's interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TRACY_OPENCL_HPP
#define TOMPION_TRACY_OPENCL_HPP

#include "Tracy.hpp"

typedef void *TracyCLCtx;

#define TracyCLContext(...) nullptr
#define TracyCLDestroy(context)
#define TracyCLContextName(context, name, size)
#define TracyCLZoneSetEvent(event)
#define TracyCLNamedZoneSetEvent(variable, event)
#define TracyCLCollect(context)
#define TracyCLZone(context, name)
#define TracyCLZoneC(context, name, color)
#define TracyCLNamedZone(context, variable, name, active)
#define TracyCLNamedZoneC(context, variable, name, color, active)
#define TracyCLZoneTransient(context, variable, name, active)
#define TracyCLZoneS(context, name, depth)
#define TracyCLZoneCS(context, name, color, depth)
#define TracyCLNamedZoneS(context, variable, name, depth, active)
#define TracyCLNamedZoneCS(context, variable, name, color, depth, active)
#define TracyCLZoneTransientS(context, variable, name, depth, active)

#endif
