#include "base/time.h"
#include "blk/vu_client_int.h"
#include <errno.h>
#include <linux/virtio_blk.h>
#include <poll.h>
#include <string.h>

#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define LOAD(p)     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define SECTOR      512u
#define ALIGN       4096u

static uint64_t up(uint64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t vu_client_ring_size(uint16_t num)
{
    return up(num * sizeof(struct vring_desc)) + up(4 + (num + 1u) * sizeof(uint16_t)) +
           up(6 + num * sizeof(struct vring_used_elem)) +
           up(num * sizeof(struct vu_client_slot));
}

void vu_client_ring_init(struct vu_client_queue *q, uint8_t *p, const struct vu_client_opts *o)
{
    q->num = (uint16_t)o->queue_size;
    /* Without indirect tables a request takes three descriptors. */
    q->n_slots = o->has_indirect ? q->num : q->num / 3u;
    q->desc = (void *)p;
    p += up(q->num * sizeof(struct vring_desc));
    q->avail = (void *)p;
    p += up(4 + (q->num + 1u) * sizeof(uint16_t));
    q->used = (void *)p;
    p += up(6 + q->num * sizeof(struct vring_used_elem));
    q->slots = (void *)p;
    for (unsigned i = 0; i < q->n_slots; i++) {
        q->free_slots[i] = q->n_slots - 1 - i;
    }
    q->n_free = q->n_slots;
}

unsigned vu_client_depth(const struct vu_client *c)
{
    return c->queues[0].n_slots;
}

uint64_t vu_client_gpa(const struct vu_client *c, const void *p)
{
    return VU_CLIENT_GPA + (uint64_t)((const uint8_t *)p - c->map);
}

static bool is_written_by_device(unsigned type)
{
    return type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID;
}

/* Header, data (when there is any) and status, one descriptor each. */
static unsigned fill_table(struct vu_client *c, const struct vu_io *io,
                           struct vu_client_slot *s, struct vring_desc *table, unsigned first)
{
    unsigned n = 0;
    const void *data = io->p;
    uint64_t len = io->len;
    s->head.type = io->type;
    s->head.ioprio = 0;
    s->head.sector = io->off / SECTOR;
    if (io->type == VIRTIO_BLK_T_DISCARD || io->type == VIRTIO_BLK_T_WRITE_ZEROES) {
        s->head.sector = 0;
        s->range.sector = io->off / SECTOR;
        s->range.n = (uint32_t)(io->len / SECTOR);
        s->range.flags = io->flags;
        data = &s->range;
        len = sizeof(s->range);
    } else if (io->type == VIRTIO_BLK_T_FLUSH) {
        len = 0;
    }
    s->status = 0xff;
    table[n++] = (struct vring_desc){vu_client_gpa(c, &s->head), sizeof(s->head),
                                     VRING_DESC_F_NEXT, (uint16_t)(first + 1)};
    if (len > 0) {
        uint16_t w = is_written_by_device(io->type) ? VRING_DESC_F_WRITE : 0;
        table[n++] =
            (struct vring_desc){vu_client_gpa(c, data), (uint32_t)len,
                                (uint16_t)(w | VRING_DESC_F_NEXT), (uint16_t)(first + 2)};
    }
    table[n++] = (struct vring_desc){vu_client_gpa(c, &s->status), 1, VRING_DESC_F_WRITE, 0};
    return n;
}

int vu_client_put(struct vu_client *c, unsigned queue, const struct vu_io *io)
{
    struct vu_client_queue *q = &c->queues[queue];
    if (q->n_free == 0) {
        return -EAGAIN;
    }
    unsigned slot = q->free_slots[--q->n_free];
    struct vu_client_slot *s = &q->slots[slot];
    uint16_t head = (uint16_t)(c->o.has_indirect ? slot : slot * 3);
    if (c->o.has_indirect) {
        unsigned n = fill_table(c, io, s, s->table, 0);
        q->desc[head] = (struct vring_desc){vu_client_gpa(c, s->table),
                                            n * (uint32_t)sizeof(struct vring_desc),
                                            VRING_DESC_F_INDIRECT, 0};
    } else {
        (void)fill_table(c, io, s, &q->desc[head], head);
    }
    q->tags[slot] = io->tag;
    q->is_busy[slot] = true;
    q->avail->ring[q->avail_idx & (q->num - 1u)] = head;
    q->avail_idx++;
    return 0;
}

static void write_fd(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof(one));
    (void)n; /* full: it is signalled already */
}

int vu_client_kick(struct vu_client *c, unsigned queue)
{
    struct vu_client_queue *q = &c->queues[queue];
    uint16_t old = q->kicked_idx;
    if (old == q->avail_idx) {
        return 0;
    }
    STORE(&q->avail->idx, q->avail_idx);
    q->kicked_idx = q->avail_idx;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    bool is_wanted = c->o.has_event_idx
                         ? vring_need_event(LOAD((uint16_t *)(void *)&q->used->ring[q->num]),
                                            q->avail_idx, old) != 0
                         : (LOAD(&q->used->flags) & VRING_USED_F_NO_NOTIFY) == 0;
    if (is_wanted) {
        write_fd(q->kick_fd);
    }
    return 0;
}

/* Takes what is used; asks for the next interrupt when nothing is left. */
static int take(struct vu_client *c, struct vu_client_queue *q, struct vu_end *ret, size_t max)
{
    size_t n = 0;
    q->has_more = false;
    for (;;) {
        while (LOAD(&q->used->idx) != q->last_used) {
            if (n == max) {
                q->has_more = true;
                return (int)n;
            }
            uint32_t id = LOAD(&q->used->ring[q->last_used & (q->num - 1u)].id);
            unsigned slot = c->o.has_indirect ? id : id / 3;
            if (slot >= q->n_slots || (!c->o.has_indirect && id % 3 != 0) ||
                !q->is_busy[slot]) {
                return -EPROTO; /* completed twice, or never asked for */
            }
            q->is_busy[slot] = false;
            q->free_slots[q->n_free++] = slot;
            ret[n].tag = q->tags[slot];
            ret[n++].status = LOAD(&q->slots[slot].status);
            q->last_used++;
        }
        if (c->o.has_event_idx) {
            STORE(&q->avail->ring[q->num], q->last_used);
        }
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (LOAD(&q->used->idx) == q->last_used) {
            return (int)n;
        }
    }
}

int vu_client_wait(struct vu_client *c, unsigned queue, uint64_t timeout_ns, struct vu_end *ret,
                   size_t max)
{
    struct vu_client_queue *q = &c->queues[queue];
    uint64_t now = time_mono_ns();
    uint64_t end = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    if (q->has_more) {
        return take(c, q, ret, max);
    }
    for (;;) {
        struct pollfd p[2] = {{q->call_fd, POLLIN, 0}, {c->sock, POLLRDHUP, 0}};
        uint64_t left = end - now;
        struct timespec ts = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
        int rc = ppoll(p, 2, end == UINT64_MAX ? NULL : &ts, NULL);
        if (rc < 0 && errno != EINTR) {
            return -errno;
        }
        if (rc > 0 && (p[0].revents & POLLIN) != 0) {
            uint64_t n = 0;
            (void)(read(q->call_fd, &n, sizeof(n)) < 0);
            rc = take(c, q, ret, max);
            if (rc != 0) {
                return rc;
            }
        } else if (rc > 0 && p[1].revents != 0) {
            return -ECONNRESET;
        }
        now = time_mono_ns();
        if (now >= end) {
            return 0;
        }
    }
}
