/*
 * Tracy's marks of Direct3D 11. Tompion does not record them: programs compile, and the marks have
 * no effect. Arguments are not evaluated. Names are those of Tracy's interface.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TOMPION_TRACY_D3D11_HPP
#define TOMPION_TRACY_D3D11_HPP

#include "Tracy.hpp"

typedef void *TracyD3D11Ctx;

#define TracyD3D11Context(...) nullptr
#define TracyD3D11Destroy(context)
#define TracyD3D11ContextName(context, name, size)
#define TracyD3D11NewFrame(context)
#define TracyD3D11Collect(context)
#define TracyD3D11Zone(context, name)
#define TracyD3D11ZoneC(context, name, color)
#define TracyD3D11NamedZone(context, variable, name, active)
#define TracyD3D11NamedZoneC(context, variable, name, color, active)
#define TracyD3D11ZoneTransient(context, variable, name, active)
#define TracyD3D11ZoneS(context, name, depth)
#define TracyD3D11ZoneCS(context, name, color, depth)
#define TracyD3D11NamedZoneS(context, variable, name, depth, active)
#define TracyD3D11NamedZoneCS(context, variable, name, color, depth, active)
#define TracyD3D11ZoneTransientS(context, variable, name, depth, active)

#endif
