#include "ostore/olog_int.h"

#include <errno.h>

/* Makes the next segment ahead and ends closed ones, so that commits wait for neither. */

static void drop(struct prepared *p)
{
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        seg_file_unref(p->files[i]);
        p->files[i] = NULL;
    }
    *p = (struct prepared){0};
}

static void make(struct olog *l, uint64_t number)
{
    struct prepared p = {.number = number};
    struct io_set s = {0};
    uint32_t chosen = olog_choose(l, number, l->n_copies, 0);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (chosen & 1u << i) {
            struct io_job *j = io_job_new(l, i, IO_PREPARE);
            j->segment = number;
            j->size = l->segment_size;
            io_post(l, &s, i, j, true);
        }
    }
    p.drives = io_wait(l, &s);
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        if (p.drives & 1u << i) {
            p.files[i] = seg_file_ref(s.v[i]->file);
        }
    }
    io_done(&s);
    pthread_mutex_lock(&l->maker_lock);
    if (l->prepare_number == number) {
        l->prepare_number = 0;
        drop(&l->prepared);
        l->prepared = p;
    } else { /* it was begun meanwhile: not made again under that name */
        drop(&p);
    }
    l->is_making = false;
    pthread_cond_broadcast(&l->maker_cond);
    pthread_mutex_unlock(&l->maker_lock);
}

static void *run(void *ctx)
{
    struct olog *l = ctx;
    pthread_mutex_lock(&l->maker_lock);
    for (;;) {
        while (!l->is_stopping && !l->prepare_number && l->finish.n == 0) {
            pthread_cond_wait(&l->maker_cond, &l->maker_lock);
        }
        if (l->finish.n > 0) { /* also when stopping: the next start has less to do */
            uint64_t number = l->finish.v[0];
            vec_remove(&l->finish, 0);
            pthread_mutex_unlock(&l->maker_lock);
            (void)!olog_finish(l, number, NULL); /* a start or a removal does it again */
            pthread_mutex_lock(&l->maker_lock);
        } else if (l->is_stopping) {
            break;
        } else {
            uint64_t number = l->prepare_number;
            l->is_making = true;
            pthread_mutex_unlock(&l->maker_lock);
            make(l, number);
            pthread_mutex_lock(&l->maker_lock);
        }
    }
    pthread_mutex_unlock(&l->maker_lock);
    return NULL;
}

int olog_maker_start(struct olog *l)
{
    int rc = pthread_create(&l->maker, NULL, run, l);
    l->has_maker = rc == 0;
    return -rc;
}

void olog_maker_stop(struct olog *l)
{
    if (l->has_maker) {
        pthread_mutex_lock(&l->maker_lock);
        l->is_stopping = true;
        pthread_cond_broadcast(&l->maker_cond);
        pthread_mutex_unlock(&l->maker_lock);
        pthread_join(l->maker, NULL);
        l->has_maker = false;
    }
    drop(&l->prepared);
    vec_free(&l->finish);
}

void olog_maker_prepare(struct olog *l, uint64_t number)
{
    pthread_mutex_lock(&l->maker_lock);
    l->prepare_number = number;
    pthread_cond_broadcast(&l->maker_cond);
    pthread_mutex_unlock(&l->maker_lock);
}

void olog_maker_finish(struct olog *l, uint64_t number)
{
    pthread_mutex_lock(&l->maker_lock);
    vec_push(&l->finish, number);
    pthread_cond_broadcast(&l->maker_cond);
    pthread_mutex_unlock(&l->maker_lock);
}

void olog_maker_take(struct olog *l, uint64_t number, struct prepared *ret)
{
    pthread_mutex_lock(&l->maker_lock);
    /* While it is being made under this name, nobody else makes it. */
    while (l->is_making && l->prepare_number == number) {
        pthread_cond_wait(&l->maker_cond, &l->maker_lock);
    }
    l->prepare_number = 0;
    if (l->prepared.number == number) {
        *ret = l->prepared;
        l->prepared = (struct prepared){0};
    } else {
        drop(&l->prepared);
    }
    pthread_mutex_unlock(&l->maker_lock);
}

static void set_finished(struct olog *l, uint64_t number)
{
    pthread_mutex_lock(&l->lock);
    struct oseg *seg = olog_find(l, number);
    if (seg) {
        seg->is_finished = true;
        seg->is_suspect = false;
    }
    pthread_mutex_unlock(&l->lock);
}

static int finish(struct olog *l, uint64_t number, struct err *err)
{
    pthread_mutex_lock(&l->lock);
    struct oseg *seg = olog_find(l, number);
    struct oseg now = seg ? *seg : (struct oseg){0};
    pthread_mutex_unlock(&l->lock);
    if (!seg || !now.is_closed || now.is_finished) {
        return 0;
    }
    if (now.is_suspect) {
        int settled = olog_settle(l, &now, err);
        if (settled == 0) {
            set_finished(l, number);
        }
        return settled;
    }
    struct seg_end e = {now.first_lsn, now.last_lsn, now.end};
    uint32_t want = now.drives & drives_writable(l->drives);
    struct io_set s = {0};
    for (unsigned i = 0; i < DRIVES_MAX; i++) {
        struct seg_file *f = NULL;
        int rc = want & 1u << i ? olog_file(l, number, i, &f) : -ENOENT;
        if (rc == -ENOENT) { /* a copy that is gone: olog_verify() makes it again */
            want &= ~(1u << i);
        } else if (rc < 0 && rc != -EMFILE && rc != -ENFILE && rc != -ENOMEM) {
            drives_fault(l->drives, i, rc, "opening a log segment");
        }
        if (rc < 0) {
            continue;
        }
        struct io_job *j = io_job_new(l, i, IO_FINISH);
        j->file = f;
        j->off = now.end;
        seg_end_encode(&e, seg_base_crc(l->log_id, number), j->header);
        io_post(l, &s, i, j, true);
    }
    uint32_t good = io_wait(l, &s);
    io_done(&s);
    if (!good || (want & ~good & drives_writable(l->drives))) {
        return fail(err, -EIO, "LogFailed", "segment %llu cannot be ended on all its drives",
                    (unsigned long long)number);
    }
    set_finished(l, number);
    return 0;
}

int olog_finish(struct olog *l, uint64_t number, struct err *err)
{
    pthread_mutex_lock(&l->finish_lock);
    int rc = finish(l, number, err);
    pthread_mutex_unlock(&l->finish_lock);
    return rc;
}
