/*
 * Tracy's marks of Direct3D 12. Tompion does not record them: programs compile, and the marks have
 * no effect. Arguments are not evaluated. Names are those of Tracy's interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TRACY_D3D12_HPP
#define TOMPION_TRACY_D3D12_HPP

#include "Tracy.hpp"

typedef void *TracyD3D12Ctx;

#define TracyD3D12Context(...) nullptr
#define TracyD3D12Destroy(context)
#define TracyD3D12ContextName(context, name, size)
#define TracyD3D12NewFrame(context)
#define TracyD3D12Collect(context)
#define TracyD3D12Zone(context, commands, name)
#define TracyD3D12ZoneC(context, commands, name, color)
#define TracyD3D12NamedZone(context, variable, commands, name, active)
#define TracyD3D12NamedZoneC(context, variable, commands, name, color, active)
#define TracyD3D12ZoneTransient(context, variable, commands, name, active)
#define TracyD3D12ZoneS(context, commands, name, depth)
#define TracyD3D12ZoneCS(context, commands, name, color, depth)
#define TracyD3D12NamedZoneS(context, variable, commands, name, depth, active)
#define TracyD3D12NamedZoneCS(context, variable, commands, name, color, depth, active)
#define TracyD3D12ZoneTransientS(context, variable, commands, name, depth, active)

#endif
