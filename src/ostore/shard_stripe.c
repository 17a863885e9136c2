#include "ostore/shard_reader_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <sys/syscall.h>

/* How long a drive that was slow is asked last. */
#define SLOW_FOR_NS NS_PER_S

/* --- single shards --- */

bool shard_is_there(const struct shard_reader *r, unsigned shard)
{
    return !r->files[shard].is_missing &&
           drives_readable(r->s->drives) >> r->body->drive[shard] & 1;
}

bool shard_is_slow(const struct shard_reader *r, unsigned shard)
{
    uint64_t until =
        atomic_load_explicit(&r->s->slow_until_ns[r->body->drive[shard]], memory_order_relaxed);
    return r->files[shard].is_last_choice || (until != 0 && time_mono_ns() < until);
}

void shard_note_slow(struct shard_reader *r, unsigned shard)
{
    atomic_store(&r->s->slow_until_ns[r->body->drive[shard]], time_mono_ns() + SLOW_FOR_NS);
    atomic_fetch_add(&r->s->n_hedged, 1);
}

void shard_report(struct shard_reader *r, unsigned shard)
{
    unsigned drive = r->body->drive[shard];
    if (r->reported >> shard & 1 || !(drives_readable(r->s->drives) >> drive & 1)) {
        return;
    }
    r->reported |= 1u << shard;
    /* What a drive that heals has not yet is on its way. */
    bool is_expected =
        drives_state(r->s->drives, drive) == DRIVE_HEALING && r->files[shard].is_missing;
    if (r->s->on_bad && !is_expected) {
        r->s->on_bad(r->s->ctx, r->body, 1u << shard);
    }
}

/* Names that the kernel knows need no drive. */
bool shard_open_now(struct shard_reader *r, unsigned shard)
{
    struct rfile *f = &r->files[shard];
    if (f->file) {
        return true;
    }
    if (r->s->fs || !shard_is_there(r, shard)) {
        return false;
    }
    char name[SHARD_NAME_SIZE];
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_CACHED};
    shard_name(r->body->id, shard, false, name);
    int dir = drives_data_dir(r->s->drives, r->body->drive[shard], r->body->id[0]);
    long fd = dir < 0 ? -1 : syscall(SYS_openat2, dir, name, &how, sizeof(how));
    if (fd < 0) {
        return false;
    }
    f->file = shard_file_new((int)fd);
    return true;
}

int shard_adopt(struct shard_reader *r, struct shard_fetch *f)
{
    struct rfile *file = &r->files[f->shard];
    if (!file->file) {
        file->file = shard_file_ref(f->file);
    }
    if (!file->table) {
        file->table = steal(&f->table);
    }
    if (f->rc == 0) {
        drives_note_read(r->s->drives, f->drive, f->took_ns);
    }
    if (!file->file || f->rc == -ENOENT) {
        file->is_missing = true;
    }
    if (f->rc < 0 || f->meta_rc < 0) {
        shard_report(r, f->shard);
    }
    return f->rc;
}

enum shard_patience shard_patience(const struct shard_reader *r, const struct shard_fetch *f,
                                   uint64_t now_ns, uint64_t *io_until_ns)
{
    if (shard_job_is_stalled(r->s, &f->job, now_ns) ||
        !(drives_readable(r->s->drives) >> f->drive & 1)) {
        return SHARD_GIVE_UP;
    }
    uint64_t usual = r->s->slow_ns ? r->s->slow_ns : drives_slow_ns(r->s->drives, f->drive);
    uint64_t slow = f->job.posted_ns + usual;
    if (now_ns < slow) {
        *io_until_ns = MIN(*io_until_ns, slow);
        return SHARD_WAIT;
    }
    *io_until_ns = MIN(*io_until_ns, now_ns + MIN(r->s->stall_ns, NS_PER_S) / 4 + 1);
    return SHARD_ASK_OTHERS;
}

/* --- a stripe from what is good --- */

enum unit_state { UNIT_NEW, UNIT_ASKED, UNIT_LATE, UNIT_GOOD, UNIT_UNSURE, UNIT_BAD };

struct gather {
    struct shard_reader *r;
    uint64_t idx;
    struct layout_stripe ls;
    enum unit_state state[RS_UNITS_MAX];
    struct shard_fetch *fetch[RS_UNITS_MAX];
    unsigned n_good, n_unsure, n_asked;
};

static uint8_t *unit_at(struct gather *g, unsigned shard)
{
    const struct layout *l = &g->r->l;
    return shard < l->k
               ? g->r->stripe->p + (size_t)shard * g->ls.unit_size
               : g->r->stripe->p + (size_t)l->k * l->unit + (size_t)(shard - l->k) * l->unit;
}

static void ask(struct gather *g, unsigned shard)
{
    struct shard_reader *r = g->r;
    struct rfile *file = &r->files[shard];
    uint32_t n = layout_unit_stored(&r->l, &g->ls, shard);
    if (n == 0) { /* nothing is stored: zeros */
        memset(unit_at(g, shard), 0, g->ls.unit_size);
        g->state[shard] = UNIT_GOOD;
        g->n_good++;
        return;
    }
    if (!shard_is_there(r, shard)) {
        g->state[shard] = UNIT_BAD;
        shard_report(r, shard);
        return;
    }
    struct shard_fetch *f =
        shard_fetch_new(r->s, r->waiter, r->body, shard, file->file, g->ls.shard_off, n);
    f->is_unit_checked = f->is_table_wanted = true;
    if (file->table) {
        size_t size = 4 * ((layout_shard_size(&r->l, shard) + r->l.unit - 1) / r->l.unit);
        f->table = malloc(size);
        if (!f->table) {
            abort();
        }
        memcpy(f->table, file->table, size);
    }
    g->fetch[shard] = f;
    g->state[shard] = UNIT_ASKED;
    g->n_asked++;
    shard_fetch_post(r->s, f);
}

/* Those that are not slow first, data before parity. */
static bool ask_next(struct gather *g)
{
    unsigned n = (unsigned)g->r->l.k + g->r->l.m;
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < n; i++) {
            if (g->state[i] == UNIT_NEW && (turn == 1 || !shard_is_slow(g->r, i))) {
                ask(g, i);
                return true;
            }
        }
    }
    return false;
}

static void take(struct gather *g, unsigned shard)
{
    struct shard_fetch *f = g->fetch[shard];
    g->fetch[shard] = NULL;
    if (g->state[shard] == UNIT_ASKED) {
        g->n_asked--;
    }
    g->state[shard] = UNIT_BAD;
    if (shard_adopt(g->r, f) == 0) {
        memcpy(unit_at(g, shard), f->p, f->n);
        memset(unit_at(g, shard) + f->n, 0, g->ls.unit_size - f->n);
        g->state[shard] = f->is_verified ? UNIT_GOOD : UNIT_UNSURE;
        g->n_good += f->is_verified;
        g->n_unsure += !f->is_verified;
    }
    shard_fetch_drop(f);
}

/* One turn of waiting; returns the drives to be faulted. */
static uint32_t wait_turn(struct gather *g, uint32_t *ret_done)
{
    struct shard_waiter *w = g->r->waiter;
    unsigned n = (unsigned)g->r->l.k + g->r->l.m;
    uint32_t stalled = 0;
    *ret_done = 0;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        uint64_t now = time_mono_ns(), until = now + NS_PER_S;
        bool is_moved = false;
        for (unsigned i = 0; i < n; i++) {
            struct shard_fetch *f = g->fetch[i];
            if (!f) {
                continue;
            }
            if (f->is_done) {
                *ret_done |= 1u << i;
                continue;
            }
            enum shard_patience p = shard_patience(g->r, f, now, &until);
            if (p == SHARD_GIVE_UP) {
                stalled |= 1u << i;
            } else if (p == SHARD_ASK_OTHERS && g->state[i] == UNIT_ASKED) {
                g->state[i] = UNIT_LATE;
                g->n_asked--;
                is_moved = true;
                shard_note_slow(g->r, i);
            }
        }
        if (*ret_done || stalled || is_moved) {
            break;
        }
        shard_waiter_wait(w, until);
    }
    pthread_mutex_unlock(&w->lock);
    return stalled;
}

static void give_up(struct gather *g, unsigned shard)
{
    if (g->state[shard] == UNIT_ASKED) {
        g->n_asked--;
    }
    g->state[shard] = UNIT_BAD;
    shard_fetch_drop(g->fetch[shard]);
    g->fetch[shard] = NULL;
    drives_fault(g->r->s->drives, g->r->body->drive[shard], -ETIMEDOUT, "reading a shard");
}

/* Until k units are good, or nobody is left to ask. */
static void gather(struct gather *g)
{
    struct shard_reader *r = g->r;
    unsigned n = (unsigned)r->l.k + r->l.m;
    for (;;) {
        while (g->n_good + g->n_asked < r->l.k && ask_next(g)) {}
        bool is_waiting = false;
        for (unsigned i = 0; i < n; i++) {
            is_waiting |= g->fetch[i] != NULL;
        }
        if (g->n_good >= r->l.k || !is_waiting) {
            break;
        }
        uint32_t done = 0, stalled = wait_turn(g, &done);
        for (unsigned i = 0; i < n; i++) {
            if (done >> i & 1) {
                take(g, i);
            } else if (stalled >> i & 1) {
                give_up(g, i);
            }
        }
    }
    for (unsigned i = 0; i < n; i++) {
        shard_fetch_drop(g->fetch[i]);
    }
}

static int decode(struct gather *g, struct err *err)
{
    struct shard_reader *r = g->r;
    unsigned n = (unsigned)r->l.k + r->l.m;
    uint32_t have = 0, want = (1u << r->l.k) - 1;
    uint8_t *units[RS_UNITS_MAX];
    /* Units whose table is bad are used when nothing else is left: blocks check them. */
    bool is_unsure_used = g->n_good < r->l.k;
    for (unsigned i = 0; i < n; i++) {
        bool is_used =
            g->state[i] == UNIT_GOOD || (g->state[i] == UNIT_UNSURE && is_unsure_used);
        have |= (uint32_t)is_used << i;
        units[i] = unit_at(g, i);
    }
    want &= ~have;
    if (want == 0) {
        return 0;
    }
    if (!r->rs) {
        int rc = rs_new(r->l.k, r->l.m, &r->rs, err);
        if (rc < 0) {
            return rc;
        }
    }
    AUTO_FREE struct rs_plan *plan = malloc(sizeof(*plan));
    if (!plan) {
        abort();
    }
    int rc = rs_plan_init(plan, r->rs, have, want, err);
    if (rc == 0) {
        rs_plan_run(plan, g->ls.unit_size, units);
        atomic_fetch_add(&r->s->n_recovered, 1);
    }
    return rc;
}

int shard_stripe(struct shard_reader *r, uint64_t idx, const uint8_t **ret_p, struct err *err)
{
    if (!r->stripe) {
        r->stripe = shard_buf_get(r->s, ((size_t)r->l.k + r->l.m) * r->l.unit);
    }
    if (!r->stripe) {
        return fail(err, -ENOMEM, "NoMemory", "no memory for a stripe");
    }
    *ret_p = r->stripe->p;
    if (r->stripe_idx == idx) {
        return 0;
    }
    r->stripe_idx = UINT64_MAX;
    struct gather g = {.r = r, .idx = idx, .ls = layout_stripe(&r->l, idx)};
    gather(&g);
    /* Without a key nothing would find out that an unsure unit is wrong. */
    if (g.n_good + (r->codec ? g.n_unsure : 0) < r->l.k) {
        atomic_fetch_add(&r->s->n_lost, 1);
        return fail(err, -EIO, "BodyLost", "only %u of %u shards of a body can be read",
                    g.n_good + g.n_unsure, (unsigned)r->l.k + r->l.m);
    }
    int rc = decode(&g, err);
    if (rc == 0) {
        r->stripe_idx = idx;
    }
    return rc;
}
