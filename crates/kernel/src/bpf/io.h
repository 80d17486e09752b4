/* Block devices and the network. */
#ifndef TOMPION_BPF_IO_H
#define TOMPION_BPF_IO_H

#include "interrupts.h"

/* Operations and flags of requests (include/linux/blk_types.h), and LTTng's letters for them as
 * bits. */
#define OPERATION 0xff
enum { OP_READ = 0, OP_WRITE = 1, OP_FLUSH = 2, OP_DISCARD = 3, OP_SECURE_ERASE = 5 };
enum { RW_WRITE = 1, RW_DISCARD = 2, RW_READ = 4, RW_AHEAD = 8, RW_SYNC = 32, RW_META = 64 };
enum { RW_SECURE = 128, RW_FLUSH = 256, RW_FUA = 512, RW_PREFLUSH = 1024 };

static ALWAYS_INLINE u32 letters(u32 flags)
{
	u32 bits = 0;
	switch (flags & OPERATION) {
	case OP_READ: bits = RW_READ; break;
	case OP_WRITE: bits = RW_WRITE; break;
	case OP_FLUSH: bits = RW_FLUSH; break;
	case OP_DISCARD: bits = RW_DISCARD; break;
	case OP_SECURE_ERASE: bits = RW_DISCARD | RW_SECURE; break;
	}
	bits |= flags & 1u << 11 ? RW_SYNC : 0;
	bits |= flags & 1u << 12 ? RW_META : 0;
	bits |= flags & 1u << 17 ? RW_FUA : 0;
	bits |= flags & 1u << 18 ? RW_PREFLUSH : 0;
	bits |= flags & 1u << 19 ? RW_AHEAD : 0;
	return bits;
}

static ALWAYS_INLINE u32 device_of(struct request *request)
{
	struct gendisk *disk = HAS_FIELD(request->rq_disk) ? request->rq_disk : request->q->disk;
	return disk ? (u32)disk->major << 20 | disk->first_minor : 0;
}

struct block_request {
	u32 dev;
	struct halves sector;
	u32 nr_sector, bytes;
	s32 tid;
	u32 rwbs;
	char comm[16];
};

static ALWAYS_INLINE int block_request(u64 *ctx, u16 event)
{
	struct request *request = (void *)ctx[0];
	RECORD(struct block_request, event)
		record->dev = device_of(request);
		record->sector = halves(request->__sector);
		record->nr_sector = request->__data_len >> 9;
		record->bytes = request->__data_len;
		record->tid = bpf_get_current_pid_tgid();
		record->rwbs = letters(request->cmd_flags);
		bpf_get_current_comm(record->comm, sizeof record->comm);
	DONE
}

SECTION("tp_btf/block_rq_insert") int block_rq_insert(u64 *ctx) { return block_request(ctx, BLOCK_RQ_INSERT); }
SECTION("tp_btf/block_rq_issue") int block_rq_issue(u64 *ctx) { return block_request(ctx, BLOCK_RQ_ISSUE); }

struct block_complete {
	u32 dev;
	struct halves sector;
	u32 nr_sector;
	s32 error;
	u32 rwbs;
};

SECTION("tp_btf/block_rq_complete") int block_rq_complete(u64 *ctx)
{
	struct request *request = (void *)ctx[0];
	RECORD(struct block_complete, BLOCK_RQ_COMPLETE)
		record->dev = device_of(request);
		record->sector = halves(request->__sector);
		record->nr_sector = (u32)ctx[2] >> 9;
		record->error = ctx[1];
		record->rwbs = letters(request->cmd_flags);
	DONE
}

struct net_packet {
	u64 skbaddr;
	u32 len;
	char name[16];
};

static ALWAYS_INLINE int net_packet(u64 *ctx, u16 event)
{
	struct sk_buff *packet = (void *)ctx[0];
	RECORD(struct net_packet, event)
		record->skbaddr = ctx[0];
		record->len = packet->len;
		copy_name(record->name, (u64 *)&packet->dev->name);
	DONE
}

SECTION("tp_btf/net_dev_queue") int net_dev_queue(u64 *ctx) { return net_packet(ctx, NET_DEV_QUEUE); }
SECTION("tp_btf/netif_receive_skb") int netif_receive_skb(u64 *ctx) { return net_packet(ctx, NET_IF_RECEIVE_SKB); }

struct net_transmit {
	u64 skbaddr;
	s32 rc;
	u32 len;
	char name[16];
};

SECTION("tp_btf/net_dev_xmit") int net_dev_xmit(u64 *ctx)
{
	struct net_device *device = (void *)ctx[2];
	RECORD(struct net_transmit, NET_DEV_XMIT)
		record->skbaddr = ctx[0];
		record->rc = ctx[1];
		record->len = ctx[3];
		copy_name(record->name, (u64 *)&device->name);
	DONE
}

#endif
