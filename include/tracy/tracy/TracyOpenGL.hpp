/*
 * Tracy's marks of OpenGL. Tompion does not record them: programs compile, and the marks have
 * no effect. Arguments are not evaluated. Names are those of Tracy's interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TRACY_OPENGL_HPP
#define TOMPION_TRACY_OPENGL_HPP

#include "Tracy.hpp"

#define TracyGpuContext
#define TracyGpuContextName(name, size)
#define TracyGpuCollect
#define TracyGpuZone(name)
#define TracyGpuZoneC(name, color)
#define TracyGpuNamedZone(variable, name, active)
#define TracyGpuNamedZoneC(variable, name, color, active)
#define TracyGpuZoneTransient(variable, name, active)
#define TracyGpuZoneS(name, depth)
#define TracyGpuZoneCS(name, color, depth)
#define TracyGpuNamedZoneS(variable, name, depth, active)
#define TracyGpuNamedZoneCS(variable, name, color, depth, active)
#define TracyGpuZoneTransientS(variable, name, depth, active)

#endif
