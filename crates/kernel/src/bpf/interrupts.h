/* Interrupts, soft interrupts, faults, signals, timers. */
#ifndef TOMPION_BPF_INTERRUPTS_H
#define TOMPION_BPF_INTERRUPTS_H

#include "wakers.h"

#define MAX_NAME 64

struct irq_entry {
	s32 irq;
	u32 name_length;
	char name[];
};

SECTION("tp_btf/irq_handler_entry") int irq_handler_entry(u64 *ctx)
{
	struct irqaction *action = (void *)ctx[1];
	interrupt_begins();
	struct texts *text = texts_of(TEXT_OF_INTERRUPT);
	if (!text)
		return 0;
	u32 length = text_length(bpf_probe_read_kernel_str(text->first, MAX_NAME, action->name));
	struct irq_entry image = {ctx[0], length};
	if (filtered && !passes(IRQ_HANDLER_ENTRY, 0, (char *)&image, ended(text->first, length), 0))
		return 0;
	struct place place;
	u32 size = WHOLE_WORDS(sizeof(struct head) + sizeof(struct irq_entry) + length);
	if (!reserve(ctx, &place, size))
		return 0;
	write_head(&place, event_here(IRQ_HANDLER_ENTRY, 0));
	struct irq_entry *record = (void *)(place.at + sizeof(struct head));
	*record = image;
	copy_text(record->name, length, text->first);
	commit(&place, size);
	return 0;
}

struct irq_exit {
	s32 irq, ret;
};

SECTION("tp_btf/irq_handler_exit") int irq_handler_exit(u64 *ctx)
{
	interrupt_ends();
	RECORD(struct irq_exit, IRQ_HANDLER_EXIT)
		record->irq = ctx[0];
		record->ret = ctx[2];
	DONE
}

struct softirq {
	u32 vec;
};

/*
 * The events of soft interrupts and of devices' handlers keep `handlers` up to date as well: a
 * second program at their tracepoints would cost as much again.
 */
static ALWAYS_INLINE int softirq(u64 *ctx, u16 event)
{
	if (event != IRQ_SOFTIRQ_RAISE)
		soft_changes(event == IRQ_SOFTIRQ_ENTRY);
	RECORD(struct softirq, event)
		record->vec = ctx[0];
	DONE
}

SECTION("tp_btf/softirq_entry") int softirq_entry(u64 *ctx) { return softirq(ctx, IRQ_SOFTIRQ_ENTRY); }
SECTION("tp_btf/softirq_exit") int softirq_exit(u64 *ctx) { return softirq(ctx, IRQ_SOFTIRQ_EXIT); }
SECTION("tp_btf/softirq_raise") int softirq_raise(u64 *ctx) { return softirq(ctx, IRQ_SOFTIRQ_RAISE); }

#if defined(__TARGET_ARCH_x86)
struct page_fault {
	u64 address, ip, error_code;
};

static ALWAYS_INLINE int page_fault(u64 *ctx, u16 event)
{
	struct pt_regs *regs = (void *)ctx[1];
	RECORD(struct page_fault, event)
		record->address = ctx[0];
		record->ip = regs->ip;
		record->error_code = ctx[2];
	DONE
}

SECTION("tp_btf/page_fault_user") int page_fault_user(u64 *ctx)
{
	return page_fault(ctx, X86_EXCEPTIONS_PAGE_FAULT_USER);
}

SECTION("tp_btf/page_fault_kernel") int page_fault_kernel(u64 *ctx)
{
	return page_fault(ctx, X86_EXCEPTIONS_PAGE_FAULT_KERNEL);
}
#endif

/* Instead of a description of the signal there may be one of these (include/linux/sched/signal.h).
 * */
#define SEND_SIG_PRIV 1
#define SI_KERNEL 0x80

struct signal_generate {
	s32 sig, error, code, pid, group, result;
	char comm[16];
};

SECTION("tp_btf/signal_generate") int signal_generate(u64 *ctx)
{
	struct kernel_siginfo *info = (void *)ctx[1];
	struct task_struct *task = (void *)ctx[2];
	u64 address = ctx[1];
	RECORD(struct signal_generate, SIGNAL_GENERATE)
		record->sig = ctx[0];
		record->error = address > SEND_SIG_PRIV ? info->si_errno : 0;
		record->code = address > SEND_SIG_PRIV ? info->si_code : address == SEND_SIG_PRIV ? SI_KERNEL : 0;
		record->pid = task->pid;
		record->group = ctx[3];
		record->result = ctx[4];
		read_comm(record->comm, task);
	DONE
}

/* Words of 8 bytes that stand at odd multiples of 4, in two halves. */
struct halves {
	u32 low, high;
};

static ALWAYS_INLINE struct halves halves(u64 value)
{
	return (struct halves){value, value >> 32};
}

struct signal_deliver {
	s32 sig, error, code;
	struct halves handler, flags;
};

SECTION("tp_btf/signal_deliver") int signal_deliver(u64 *ctx)
{
	struct kernel_siginfo *info = (void *)ctx[1];
	struct k_sigaction *action = (void *)ctx[2];
	u64 address = ctx[1], handler = 0;
	/* To the verifier it is an address, of which no half may stand on the stack. */
	bpf_probe_read_kernel(&handler, sizeof handler, &action->sa.sa_handler);
	RECORD(struct signal_deliver, SIGNAL_DELIVER)
		record->sig = ctx[0];
		record->error = address > SEND_SIG_PRIV ? info->si_errno : 0;
		record->code = address > SEND_SIG_PRIV ? info->si_code : address == SEND_SIG_PRIV ? SI_KERNEL : 0;
		record->handler = halves(handler);
		record->flags = halves(action->sa.sa_flags);
	DONE
}

struct hrtimer_start {
	u64 hrtimer, function;
	s64 expires, softexpires;
	u32 mode;
};

SECTION("tp_btf/hrtimer_start") int hrtimer_start(u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	RECORD(struct hrtimer_start, TIMER_HRTIMER_START)
		record->hrtimer = ctx[0];
		record->function = (u64)timer->function;
		record->expires = timer->node.expires;
		record->softexpires = timer->_softexpires;
		record->mode = ctx[1];
	DONE
}

struct hrtimer_expire {
	u64 hrtimer;
	s64 now;
	u64 function;
};

SECTION("tp_btf/hrtimer_expire_entry") int hrtimer_expire_entry(u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	s64 now = 0;
	bpf_probe_read_kernel(&now, sizeof now, (void *)ctx[1]);
	RECORD(struct hrtimer_expire, TIMER_HRTIMER_EXPIRE_ENTRY)
		record->hrtimer = ctx[0];
		record->now = now;
		record->function = (u64)timer->function;
	DONE
}

struct hrtimer_end {
	u64 hrtimer;
};

static ALWAYS_INLINE int hrtimer_end(u64 *ctx, u16 event)
{
	RECORD(struct hrtimer_end, event)
		record->hrtimer = ctx[0];
	DONE
}

SECTION("tp_btf/hrtimer_expire_exit") int hrtimer_expire_exit(u64 *ctx)
{
	return hrtimer_end(ctx, TIMER_HRTIMER_EXPIRE_EXIT);
}

SECTION("tp_btf/hrtimer_cancel") int hrtimer_cancel(u64 *ctx) { return hrtimer_end(ctx, TIMER_HRTIMER_CANCEL); }

#endif
