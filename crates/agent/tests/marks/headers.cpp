/* Marks that Tompion takes without effect, and those of Tracy's newer macros: they compile. */
#include <tracy/Tracy.hpp>
#include <tracy/TracyD3D11.hpp>
#include <tracy/TracyD3D12.hpp>
#include <tracy/TracyOpenCL.hpp>
#include <tracy/TracyOpenGL.hpp>
#include <tracy/TracyVulkan.hpp>

void vulkan(TracyVkCtx context);
void vulkan(TracyVkCtx context)
{
    TracyVkCtx made = TracyVkContextCalibrated(instance, device, queue, commands, first, second);
    TracyVkContextName(context, "queue", 5);
    {
        TracyVkZone(context, commands, "draw");
        TracyVkNamedZoneC(context, zone, commands, "draw", 0xff0000, true);
        TracyVkZoneTransient(context, other, commands, "text", true);
    }
    TracyVkCollect(context, commands);
    TracyVkDestroy(context);
    (void)made, (void)context;
}

void others();
void others()
{
    TracyCLCtx compute = TracyCLContext(context, device);
    TracyD3D11Ctx eleven = TracyD3D11Context(device, context);
    TracyD3D12Ctx twelve = TracyD3D12Context(device, queue);
    TracyGpuContext;
    TracyGpuZone("draw");
    TracyGpuNamedZoneS(zone, "draw", 5, true);
    TracyGpuCollect;
    TracyCLNamedZone(compute, zone, "kernel", true);
    TracyCLNamedZoneSetEvent(zone, event);
    TracyD3D11Zone(eleven, "draw");
    TracyD3D12ZoneC(twelve, list, "draw", 0x00ff00);
    (void)compute, (void)eleven, (void)twelve;
}

int main()
{
    const auto section = TracySectionEnter("loading");
    tracy::SetThreadName("main");
    tracy::SetThreadNameWithHint("main", 1);
    TracyLogString(tracy::MessageSeverity::Warning, 0xff0000, 0, 4, "text");
    TracyLogString(tracy::MessageSeverity::Info, 0, 0, "text");
    TracySectionLeave(section);
    return 0;
}
