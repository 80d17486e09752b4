/*
 * What of the running kernel the programs touch. Only names count: where a field lies in the kernel
 * that is running is looked up in its BTF when the programs are loaded, so fields are left out, and
 * the order is ours. Sources: the kernel's
 * include/linux/{sched,interrupt,blkdev,netdevice,skbuff,hrtimer,binfmts,cgroup-defs}.h.
 */
#ifndef TOMPION_BPF_KERNEL_H
#define TOMPION_BPF_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct timerqueue_node {
	s64 expires;
};

struct hrtimer_clock_base {
	s64 offset;
};

struct hrtimer {
	struct timerqueue_node node;
	s64 _softexpires;
	void *function;
	struct hrtimer_clock_base *base;
	u8 is_soft;
};

struct sched_dl_entity {
	struct hrtimer dl_timer;
};

struct signal_struct {
	struct {
		s32 counter;
	} live;
	u32 flags;
	s32 group_exit_code;
};

struct kernfs_node {
	u64 id;
};

struct cgroup_root {
	s32 hierarchy_id;
};

struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct thread_info {
	u32 status; /* x86 */
};

struct task_struct {
	struct thread_info thread_info;
	u32 __state;
	u32 flags;
	s32 exit_state;
	s32 exit_code;
	s32 pid;
	s32 tgid;
	s32 prio;
	u32 policy;
	s32 on_rq;
	u64 start_time;
	unsigned long nvcsw; /* how often it slept */
	struct sched_dl_entity dl;
	char comm[16];
	void *mm;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct css_set *cgroups;
};

struct hrtimer_sleeper {
	struct hrtimer timer;
	struct task_struct *task;
};

struct linux_binprm {
	const char *filename;
};

struct irqaction {
	const char *name;
};

struct kernel_siginfo {
	s32 si_errno;
	s32 si_code;
};

struct sigaction {
	void *sa_handler;
	unsigned long sa_flags;
};

struct k_sigaction {
	struct sigaction sa;
};

struct gendisk {
	s32 major;
	s32 first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	struct gendisk *rq_disk; /* before Linux 5.17 */
	u32 cmd_flags;
	u32 __data_len;
	u64 __sector;
};

struct net_device {
	char name[16];
};

struct sk_buff {
	struct net_device *dev;
	u32 len;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10, r9, r8, ax, dx, si, di, orig_ax, ip;
};
#define SYSCALL_NUMBER(regs) ((long)(regs)->orig_ax)
#define ARGUMENT_0(regs) ((regs)->di)
#define ARGUMENT_1(regs) ((regs)->si)
#define ARGUMENT_2(regs) ((regs)->dx)
#define ARGUMENT_3(regs) ((regs)->r10)
#define ARGUMENT_4(regs) ((regs)->r8)
#define ARGUMENT_5(regs) ((regs)->r9)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	u64 orig_x0;
	s32 syscallno;
};
#define SYSCALL_NUMBER(regs) ((long)(regs)->syscallno)
#define ARGUMENT_0(regs) ((regs)->orig_x0)
#define ARGUMENT_1(regs) ((regs)->regs[1])
#define ARGUMENT_2(regs) ((regs)->regs[2])
#define ARGUMENT_3(regs) ((regs)->regs[3])
#define ARGUMENT_4(regs) ((regs)->regs[4])
#define ARGUMENT_5(regs) ((regs)->regs[5])
#else
#error "this architecture's system calls are not described yet"
#endif

#pragma clang attribute pop

/* Kinds and flags of maps (bpf(2), linux/bpf.h). */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_MMAPABLE = 1 << 10 };

/* Helpers of the kernel, by number (bpf-helpers(7)). */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_get_current_comm)(void *to, u32 size) = (void *)16;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*const bpf_probe_read_user_str)(void *to, u32 size, const void *from) = (void *)114;
static long (*const bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static u64 (*const bpf_perf_event_read)(void *map, u64 flags) = (void *)22;
static long (*const bpf_get_stack)(void *ctx, void *to, u32 size, u64 flags) = (void *)67;
static u64 (*const bpf_get_current_cgroup_id)(void) = (void *)80;
static void *(*const bpf_ringbuf_reserve)(void *map, u64 size, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *record, u64 flags) = (void *)132;
static u64 (*const bpf_get_attach_cookie)(void *ctx) = (void *)174;

/* Description of maps and programs for their loader. */
#define SECTION(name) __attribute__((section(name), used))
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define HAS_FIELD(field) __builtin_preserve_field_info(field, 2)
#define OFFSET_OF(type, field) __builtin_preserve_field_info(((type *)0)->field, 0)

/* Before Linux 5.16 a thread's CPU stands elsewhere than after; BTF tells where. */
struct task_struct___old {
	u32 cpu;
} __attribute__((preserve_access_index));

struct thread_info___new {
	u32 cpu;
} __attribute__((preserve_access_index));

static ALWAYS_INLINE s32 cpu_of(struct task_struct *task)
{
	struct task_struct___old *old = (void *)task;
	if (HAS_FIELD(old->cpu))
		return old->cpu;
	struct thread_info___new *info = (void *)&task->thread_info;
	return info->cpu;
}

#endif
