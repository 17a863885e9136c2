#include "blk/blk_file_int.h"

#include "base/time.h"
#include <errno.h>
#include <unistd.h>

#define SYNC_QUICK_NS UINT64_C(300000)

/* One fdatasync at a time, for all who wait when it begins; who comes while it runs waits for the
 * next. The first of those who wait leads: the call is made on the ring of its queue, which stays
 * because the request is not over. */

static void add(struct req_queue *w, struct blk_req *r)
{
    r->next = NULL;
    *w->tail = r;
    w->tail = &r->next;
}

/* GUARDED_BY(sync_lock). Those who wait are under way now; returns who leads. */
static struct blk_req *next_group(struct file *f)
{
    struct blk_req *lead = f->waiting.head;
    f->is_syncing = lead != NULL;
    if (!lead) {
        return NULL;
    }
    f->under.head = lead;
    f->under.tail = f->waiting.tail;
    f->waiting.head = NULL;
    f->waiting.tail = &f->waiting.head;
    return lead;
}

static struct blk_req *take_all(struct req_queue *w)
{
    struct blk_req *r = w->head;
    w->head = NULL;
    w->tail = &w->head;
    return r;
}

static void lead(struct blk_req *r)
{
    struct file_io *s = file_io(r);
    s->step = STEP_SYNC;
    s->f->sync_start_ns = time_mono_ns();
    __atomic_fetch_add(&s->f->n_syncs, 1, __ATOMIC_RELAXED);
    file_issue(r);
}

/* The ring gives a sync to a kernel thread, which costs two switches. Where a sync is quick and
 * nothing else of this queue is under way, the queue makes the call itself; not at once, but when
 * it has taken in what came together with the flush. */
static void lead_here(struct blk_msg *m)
{
    struct blk_req *r = file_req(&CONTAINER_OF(m, struct file_io, wait.msg)->io);
    struct file *f = file_io(r)->f;
    if (blk_queue_n_io(r->q) > 0 ||
        __atomic_load_n(&f->sync_ns, __ATOMIC_RELAXED) > SYNC_QUICK_NS) {
        lead(r);
        return;
    }
    f->sync_start_ns = time_mono_ns();
    __atomic_fetch_add(&f->n_syncs, 1, __ATOMIC_RELAXED);
    file_sync_done(r, fdatasync(f->o.fd) == 0 ? 0 : -errno);
}

void file_sync(struct blk_req *r)
{
    struct file *f = file_io(r)->f;
    __atomic_fetch_add(&f->n_flushes, 1, __ATOMIC_RELAXED);
    struct blk_req *first = NULL;
    pthread_mutex_lock(&f->sync_lock);
    bool is_late = file_has_fault(f); /* a sync failed: no other is ever tried */
    if (!is_late) {
        add(&f->waiting, r);
        first = f->is_syncing ? NULL : next_group(f);
    }
    pthread_mutex_unlock(&f->sync_lock);
    if (is_late) {
        blk_done(r, -ESTALE);
    } else if (first) {
        file_io(first)->wait.msg.fn = lead_here;
        blk_queue_post(first->q, &file_io(first)->wait.msg);
    }
}

static void lead_msg(struct blk_msg *m)
{
    lead(file_req(&CONTAINER_OF(m, struct file_io, wait.msg)->io));
}

static void over_msg(struct blk_msg *m)
{
    struct blk_req *r = file_req(&CONTAINER_OF(m, struct file_io, wait.msg)->io);
    blk_done(r, r->rc);
}

static void answer(struct blk_req *list, struct blk_queue *here, int rc)
{
    while (list) {
        struct blk_req *r = list;
        list = r->next; /* r may be gone as soon as it is told */
        if (r->q == here) {
            blk_done(r, rc);
            continue;
        }
        r->rc = rc;
        file_io(r)->wait.msg.fn = over_msg;
        blk_queue_post(r->q, &file_io(r)->wait.msg);
    }
}

void file_sync_done(struct blk_req *r, int res)
{
    struct file *f = file_io(r)->f;
    struct blk_queue *here = r->q;
    struct blk_req *next = NULL, *lost = NULL;
    __atomic_store_n(&f->sync_ns, time_mono_ns() - f->sync_start_ns, __ATOMIC_RELAXED);
    if (res < 0) {
        file_fault(f, -res); /* before the lock: who comes now is refused or waits below */
    }
    pthread_mutex_lock(&f->sync_lock);
    struct blk_req *done = take_all(&f->under);
    if (file_has_fault(f)) {
        lost = take_all(&f->waiting);
        f->is_syncing = false;
    } else {
        next = next_group(f);
    }
    pthread_mutex_unlock(&f->sync_lock);
    if (next && next->q == here) {
        lead(next);
    } else if (next) {
        file_io(next)->wait.msg.fn = lead_msg;
        blk_queue_post(next->q, &file_io(next)->wait.msg);
    }
    answer(done, here, res < 0 ? -EIO : 0);
    answer(lost, here, -ESTALE);
}
