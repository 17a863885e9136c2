#include "blk/blk_file_int.h"

#include <errno.h>

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
    __atomic_fetch_add(&s->f->n_syncs, 1, __ATOMIC_RELAXED);
    file_issue(r);
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
        lead(first);
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
