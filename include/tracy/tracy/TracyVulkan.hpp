/*
 * Tracy's marks of Vulkan. Tompion does not record them: programs compile, and the marks have
 * no effect. Arguments are not evaluated. Names are those of Tracy's interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TRACY_VULKAN_HPP
#define TOMPION_TRACY_VULKAN_HPP

#include "Tracy.hpp"

typedef void *TracyVkCtx;

#define TracyVkContext(...) nullptr
#define TracyVkContextCalibrated(...) nullptr
#define TracyVkContextHostCalibrated(...) nullptr
#define TracyVkDestroy(context)
#define TracyVkContextName(context, name, size)
#define TracyVkCollect(context, commands)
#define TracyVkCollectHost(context)
#define TracyVkZone(context, commands, name)
#define TracyVkZoneC(context, commands, name, color)
#define TracyVkNamedZone(context, variable, commands, name, active)
#define TracyVkNamedZoneC(context, variable, commands, name, color, active)
#define TracyVkZoneTransient(context, variable, commands, name, active)
#define TracyVkZoneS(context, commands, name, depth)
#define TracyVkZoneCS(context, commands, name, color, depth)
#define TracyVkNamedZoneS(context, variable, commands, name, depth, active)
#define TracyVkNamedZoneCS(context, variable, commands, name, color, depth, active)
#define TracyVkZoneTransientS(context, variable, commands, name, depth, active)

#endif
