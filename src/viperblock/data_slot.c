#include "base/log.h"
#include "viperblock/data.h"
#include "viperblock/step.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

LOG_MODULE("data.slot");

#define MEM_SIZE ((size_t)CTL_N_SLOTS * BLK_BLOCK)

/* How many of the slots a class may have at once: a guest that waits for many blocks does not stop
 * a snapshot for ever, and a store that takes nothing does not stop guests. */
static const unsigned max_used[ASK_N] = {
    [ASK_GUEST] = CTL_N_SLOTS - 3, [ASK_UPLOAD] = 8, [ASK_BACKGROUND] = 4};

void data_slots_init(struct data *p)
{
    pthread_mutex_init(&p->ask_mu, NULL);
    for (unsigned i = 0; i < ASK_N; i++) {
        p->asks[i].tail = &p->asks[i].head;
    }
    p->mem_fd = -1;
}

static enum data_ask_class class_of(const struct data_ask *a)
{
    return a->is_upload ? ASK_UPLOAD : a->is_background ? ASK_BACKGROUND : ASK_GUEST;
}

static void append(struct data_asks *q, struct data_ask *a)
{
    a->next = NULL;
    *q->tail = a;
    q->tail = &a->next;
}

/* ---- from the queues of the disks ---- */

static void ask(const struct data_ask *from)
{
    struct data *p = from->d->p;
    struct data_ask *a = malloc(sizeof(*a)); /* one for 512 KiB: how many, the disk limits */
    if (!a) {
        abort();
    }
    *a = *from;
    pthread_mutex_lock(&p->ask_mu);
    append(&p->asks[class_of(a)], a);
    pthread_mutex_unlock(&p->ask_mu);
    data_wake(p);
}

static void on_want(void *ctx, uint64_t block, bool is_background)
{
    ask(&(struct data_ask){.d = ctx, .block = block, .is_background = is_background});
}

static void on_upload(void *ctx, unsigned frozen_idx, uint64_t block, const void *data)
{
    STEP("data.upload");
    ask(&(struct data_ask){
        .d = ctx, .block = block, .is_upload = true, .frozen_idx = frozen_idx, .data = data});
}

static void on_upload_end(void *ctx, unsigned frozen_idx)
{
    struct data_disk *d = ctx;
    STEP("data.uploaded");
    atomic_fetch_or(&d->done, 1u << frozen_idx);
    data_wake(d->p);
}

struct blk_supplier data_supplier(struct data_disk *d)
{
    return (struct blk_supplier){
        .want = on_want, .upload = on_upload, .upload_end = on_upload_end, .ctx = d};
}

/* ---- the main loop's side ---- */

static struct data_ask *take(struct data *p, enum data_ask_class class)
{
    pthread_mutex_lock(&p->ask_mu);
    struct data_asks *q = &p->asks[class];
    struct data_ask *a = q->head;
    if (a) {
        q->head = a->next;
        q->tail = q->head ? q->tail : &q->head;
    }
    pthread_mutex_unlock(&p->ask_mu);
    return a;
}

/* Takes the ask. */
static void answer(struct data_ask *a, int rc, const void *data)
{
    struct data_disk *d = a->d;
    pthread_mutex_lock(&d->mu);
    if (d->cow && a->is_upload) {
        STEP("data.stored");
        blk_cow_uploaded(d->cow, a->frozen_idx, a->block, rc);
    } else if (d->cow) {
        blk_cow_supplied(d->cow, a->block, rc, data);
    }
    pthread_mutex_unlock(&d->mu);
    free(a);
}

static void put_slot(struct data *p, unsigned i)
{
    p->n_used[p->slots[i].class]--;
    p->slots[i] = (struct data_slot){.is_used = false};
}

static void drop_waiting(struct data_disk *d, enum data_ask_class class, int rc)
{
    struct data *p = d->p;
    struct data_asks mine = {.head = NULL};
    mine.tail = &mine.head;
    pthread_mutex_lock(&p->ask_mu);
    struct data_asks *q = &p->asks[class];
    struct data_ask *a = q->head, *next = NULL;
    q->head = NULL;
    q->tail = &q->head;
    for (; a; a = next) {
        next = a->next;
        append(a->d == d ? &mine : q, a);
    }
    pthread_mutex_unlock(&p->ask_mu);
    for (a = mine.head; a; a = next) { /* may ask again, at once */
        next = a->next;
        answer(a, rc, NULL);
    }
}

void data_slots_drop(struct data_disk *d, int want_rc)
{
    struct data *p = d->p;
    for (unsigned i = 0; i < CTL_N_SLOTS; i++) {
        struct data_slot *s = &p->slots[i];
        struct data_ask *a = s->ask;
        if (a && a->d == d) {
            s->ask = NULL;
            if (s->is_due) {
                put_slot(p, i);
            }
            answer(a, a->is_upload ? -EAGAIN : want_rc, NULL);
        }
    }
    for (unsigned c = 0; c < ASK_N; c++) {
        drop_waiting(d, (enum data_ask_class)c, c == ASK_UPLOAD ? -EAGAIN : want_rc);
    }
}

static unsigned free_slot(const struct data *p)
{
    unsigned i = 0;
    while (i < CTL_N_SLOTS && p->slots[i].is_used) {
        i++;
    }
    return i;
}

void data_slots_assign(struct data *p)
{
    for (unsigned c = 0; c < ASK_N; c++) {
        struct data_ask *a = NULL;
        while (p->n_used[c] < max_used[c]) {
            unsigned i = free_slot(p);
            if (i == CTL_N_SLOTS || (a = take(p, (enum data_ask_class)c)) == NULL) {
                break;
            }
            if (a->is_upload) {
                memcpy(p->mem + (size_t)i * BLK_BLOCK, a->data, BLK_BLOCK);
            }
            p->slots[i] = (struct data_slot){.is_used = true,
                                             .is_due = true,
                                             .class = (enum data_ask_class)c,
                                             .no = a->d->no,
                                             .block = a->block,
                                             .ask = a};
            p->n_used[c]++;
        }
    }
}

bool data_slots_next(struct data *p, union ctl_msg *ret, unsigned *ret_slot)
{
    for (unsigned i = 0; i < CTL_N_SLOTS; i++) {
        const struct data_ask *a = p->slots[i].ask;
        if (!a || !p->slots[i].is_due) {
            continue;
        }
        ret->h = (struct ctl_head){.op = a->is_upload ? CTL_UPLOAD : CTL_FETCH,
                                   .disk = a->d->no,
                                   .slot = i,
                                   .block = a->block,
                                   .arg = a->is_background};
        if (a->is_upload) {
            pthread_mutex_lock(&a->d->mu);
            memcpy(ret->h.snap, a->d->frozen[a->frozen_idx], BLK_SNAP_ID);
            pthread_mutex_unlock(&a->d->mu);
        }
        *ret_slot = i;
        return true;
    }
    return false;
}

/* The slot that a message is about, when it was asked for just that. */
static struct data_slot *asked(struct data *p, const struct ctl_head *h, bool is_upload)
{
    struct data_slot *s = &p->slots[h->slot];
    if (!s->is_used || s->is_due || (s->class == ASK_UPLOAD) != is_upload || s->no != h->disk ||
        s->block != h->block) {
        log_warn_rl("data.answer_without_question", KV_U64("slot", h->slot),
                    KV_U64("block", h->block));
        return NULL;
    }
    return s;
}

void data_slots_fetched(struct data *p, const struct ctl_head *h)
{
    struct data_slot *s = asked(p, h, false);
    if (s && s->ask) {
        const void *data = h->rc == CTL_FETCHED_DATA      ? p->mem + (size_t)h->slot * BLK_BLOCK
                           : h->rc == CTL_FETCHED_IN_BASE ? BLK_IN_BASE
                                                          : NULL;
        answer(s->ask, MIN(h->rc, 0), data); /* copies before the slot is free for others */
    }
    if (s) {
        put_slot(p, h->slot);
    }
}

void data_slots_stored(struct data *p, const struct ctl_head *h)
{
    struct data_slot *s = asked(p, h, true);
    if (s && s->ask) {
        answer(s->ask, h->rc, NULL);
    }
    if (s) {
        put_slot(p, h->slot);
    }
}

/* A memory of its own for each connection: a manager that was replaced, or is half dead, writes
 * into nothing that matters. */
int data_slots_renew(struct data *p, struct err *err)
{
    AUTO_FD fd = memfd_create("slots", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)MEM_SIZE) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return fail(err, -ENOMEM, "OutOfMemory", "memory to share: %m");
    }
    void *mem = mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mem == MAP_FAILED) {
        return fail(err, -ENOMEM, "OutOfMemory", "memory to share: %m");
    }
    for (unsigned i = 0; i < CTL_N_SLOTS; i++) {
        struct data_ask *a = p->slots[i].ask;
        p->slots[i].is_due = a != NULL;
        if (!a && p->slots[i].is_used) {
            put_slot(p, i);
        }
        if (a && a->is_upload) {
            memcpy((uint8_t *)mem + (size_t)i * BLK_BLOCK, a->data, BLK_BLOCK);
        }
    }
    data_slots_free(p);
    p->mem = mem;
    p->mem_fd = steal_fd(&fd);
    return 0;
}

void data_slots_free(struct data *p)
{
    if (p->mem) {
        munmap(p->mem, MEM_SIZE);
        p->mem = NULL;
    }
    if (p->mem_fd >= 0) {
        close(p->mem_fd);
        p->mem_fd = -1;
    }
}
