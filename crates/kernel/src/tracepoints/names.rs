//! Names that LTTng's kernel tracer gives tracepoints and fields, where tracefs has other names.

/// The name in traces of a tracepoint.
pub fn event_name(system: &str, name: &str) -> String {
    let with = |prefix: &str| format!("{prefix}{name}");
    match (system, name) {
        ("irq", _) if name.starts_with("softirq_") || name.starts_with("tasklet_") => with("irq_"),
        ("kmem", _) if !name.starts_with("kmem_") => with("kmem_"),
        ("timer", _) if name.starts_with("hrtimer_") || name.starts_with("itimer_") => with("timer_"),
        ("power", "cpu_idle" | "cpu_frequency" | "machine_suspend") => with("power_"),
        ("exceptions", _) => with("x86_exceptions_"),
        ("irq_vectors", _) => with("x86_irq_vectors_"),
        ("preemptirq", _) => with("preemptirq_"),
        ("printk", "console") => with("printk_"),
        ("skb", "kfree_skb") => "skb_kfree".into(),
        ("skb", "consume_skb") => "skb_consume".into(),
        ("net", _) if name.starts_with("napi_gro_") => with("net_"),
        ("net", _) => name.strip_prefix("netif_").map_or(name.into(), |rest| format!("net_if_{rest}")),
        ("compaction", _) => name.strip_prefix("mm_").unwrap_or(name).into(),
        ("kvm", _) => match name.strip_prefix("kvm_") {
            Some(
                rest @ ("entry" | "exit" | "hypercall" | "pio" | "cpuid" | "apic" | "msr" | "cr" | "inj_virq"
                | "inj_exception" | "page_fault" | "eoi" | "pv_eoi" | "pic_set_irq" | "apic_ipi"
                | "apic_accept_irq"),
            ) => format!("kvm_x86_{rest}"),
            _ => name.into(),
        },
        _ => name.into(),
    }
}

/// The name in traces of a tracepoint's field: what the scheduler calls a process is a thread.
pub fn field_name(system: &str, field: &str) -> String {
    match (system, field) {
        ("sched", "pid") => "tid".into(),
        ("sched", _) => {
            field.strip_suffix("_pid").map_or_else(|| field.into(), |before| format!("{before}_tid"))
        }
        _ => field.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_lttng() {
        let cases = [
            ("kmem", "kmalloc", "kmem_kmalloc"),
            ("kmem", "kmem_cache_free", "kmem_cache_free"),
            ("net", "netif_rx", "net_if_rx"),
            ("kvm", "kvm_exit", "kvm_x86_exit"),
            ("kvm", "kvm_mmio", "kvm_mmio"),
            ("ext4", "ext4_da_write_begin", "ext4_da_write_begin"),
        ];
        for (system, name, expected) in cases {
            assert_eq!(event_name(system, name), expected);
        }
        assert_eq!(
            (&*field_name("sched", "pid"), &*field_name("sched", "parent_pid")),
            ("tid", "parent_tid")
        );
        assert_eq!(field_name("oom", "pid"), "pid");
    }
}
