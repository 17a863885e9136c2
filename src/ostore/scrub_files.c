#include "ostore/scrub.h"

#include "ostore/recode.h"

#include <errno.h>

static int name_of(struct ostore *s, const struct ipeek *p, struct arena *a, struct str *ret)
{
    const struct obucket *b = buckets_now(s, p->bucket);
    *ret = arena_fmt(a, "%.*s/%.*s", STR_ARG(b ? b->name : STR("?")), STR_ARG(p->key));
    obucket_unref(b);
    return ret->p ? 0 : -ENOMEM;
}

static int fill(struct ostore *s, const struct ival *v, const struct ipeek *p, struct arena *a,
                struct file_place *ret, struct err *err)
{
    struct orec r;
    struct ival copy = *v;
    copy.head = arena_str_dup(a, v->head);
    if (!copy.head.p) {
        return fail(err, -ENOMEM, "OutOfMemory", "no memory for a record");
    }
    int rc = ival_rec(&copy, a, &r, err);
    if (rc < 0) {
        return rc;
    }
    *ret = (struct file_place){
        .body = r.body, .kind = v->kind, .lsn = v->lsn, .segment = v->segment, .off = v->off};
    memcpy(ret->pin, v->kind == OREC_PART ? p->upload : r.body.id, sizeof(ret->pin));
    return name_of(s, p, a, &ret->name);
}

int files_next(struct ostore *s, struct heal_cursor *io, struct arena *a,
               struct file_place *ret, struct err *err)
{
    static const char kinds[] = {IX_OLD, IX_OBJECT, IX_PART};
    for (size_t i = 0; i < sizeof(kinds); i++) {
        char end[1] = {(char)(kinds[i] + 1)}, first[1] = {kinds[i]};
        struct oindex_iter *it = NULL;
        if (io->n > 0 && (char)io->p[0] > kinds[i]) {
            continue;
        }
        bool is_behind = io->n > 0 && (char)io->p[0] == kinds[i];
        struct str from = is_behind ? str_n((const char *)io->p, io->n) : str_n(first, 1);
        int rc = oindex_iter_open(s->index, str_n(end, 1), &it);
        if (rc < 0) {
            return fail(err, rc, "OutOfMemory", "no memory for the index");
        }
        bool is = oindex_seek(it, from);
        if (is && is_behind && str_eq(oindex_key(it), from)) {
            is = oindex_next(it);
        }
        for (; is && rc == 0; is = oindex_next(it)) {
            struct ival v;
            struct ipeek p;
            rc = ival_decode(oindex_value(it), &v, err);
            if (rc < 0 || index_peek(v.head, &p) < 0 || !p.is_file) {
                continue;
            }
            struct str key = oindex_key(it);
            rc = key.n <= HEAL_CURSOR_MAX ? fill(s, &v, &p, a, ret, err) : -EUCLEAN;
            if (rc == 0) {
                memcpy(io->p, key.p, key.n);
                io->n = key.n;
                rc = 1;
            }
        }
        if (rc == 0) {
            rc = oindex_iter_error(it, err);
        }
        oindex_iter_close(it);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int files_moved(struct ostore *s, const struct file_place *f, struct err *err)
{
    struct arena *a = arena_new((size_t)4 << 20);
    struct olog_rec src;
    int rc = olog_read(s->log, a, (struct olog_place){f->segment, f->off}, &src, err);
    if (rc == 0) {
        struct cop op = {.kind = COP_MOVE, .src = &src, .new_body = &f->body};
        rc = commit_wait(s->commit, &op);
        if (rc < 0) {
            rc = fail(err, rc, op.err.name, "%s", op.err.msg);
        } else if (!op.has_record) {
            rc = -ENOENT; /* deleted, or copied forward: a later pass finds it again */
        }
    }
    arena_free(a);
    return rc;
}

/* --- the sweep --- */

struct known {
    struct ostore *s;
    struct omap *ids; /* struct known_at */
    bool has_weak;
};
struct known_at { /* where the shards of a body are */
    uint8_t n, drive[];
};

void files_note(struct ostore *s, const uint8_t id[OREC_ID_SIZE])
{
    pthread_mutex_lock(&s->sweep_lock);
    if (s->sweep_new) {
        omap_put(s->sweep_new, str_n((const char *)id, OREC_ID_SIZE), s);
    }
    pthread_mutex_unlock(&s->sweep_lock);
}

void files_at_work(struct ostore *s, const uint8_t id[OREC_ID_SIZE])
{
    static const uint8_t none[OREC_ID_SIZE];
    pthread_mutex_lock(&s->sweep_lock);
    if (s->sweep_new) { /* what the sweep has read of it may be of before */
        omap_put(s->sweep_new, str_n((const char *)s->at_work, OREC_ID_SIZE), s);
    }
    memcpy(s->at_work, id ? id : none, OREC_ID_SIZE);
    pthread_mutex_unlock(&s->sweep_lock);
}

/* A shard that was moved off a drive which came back is known, but not there. */
static bool is_known(void *ctx, const uint8_t id[OREC_ID_SIZE], unsigned shard, unsigned drive)
{
    struct known *k = ctx;
    struct str s = str_n((const char *)id, OREC_ID_SIZE);
    const struct known_at *at = omap_get(k->ids, s);
    bool is = at && shard < at->n && at->drive[shard] == drive;
    if (!is) {
        pthread_mutex_lock(&k->s->sweep_lock);
        is = omap_get(k->s->sweep_new, s) != NULL ||
             memcmp(k->s->at_work, id, OREC_ID_SIZE) == 0;
        pthread_mutex_unlock(&k->s->sweep_lock);
    }
    return is || pins_is_buried(k->s->pins, id);
}

static void know(struct known *k, const struct orec_body *b)
{
    unsigned n = (unsigned)b->k + b->m;
    struct known_at *at = calloc(1, sizeof(*at) + n);
    if (!at) {
        abort();
    }
    at->n = (uint8_t)n;
    memcpy(at->drive, b->drive, n);
    free(omap_put(k->ids, str_n((const char *)b->id, OREC_ID_SIZE), at));
    k->has_weak |= recode_is_weak(k->s, b);
}

static int gather(struct known *k, char kind, struct err *err)
{
    char end[1] = {(char)(kind + 1)}, first[1] = {kind};
    struct oindex_iter *it = NULL;
    struct arena *a = arena_new((size_t)4 << 20);
    int rc = oindex_iter_open(k->s->index, str_n(end, 1), &it);
    for (bool is = rc == 0 && oindex_seek(it, str_n(first, 1)); is && rc == 0;
         is = oindex_next(it)) {
        struct ival v;
        struct ipeek p;
        struct orec r;
        rc = ival_decode(oindex_value(it), &v, err);
        if (rc < 0 || index_peek(v.head, &p) < 0 || !p.is_file) {
            continue;
        }
        arena_reset(a);
        rc = ival_rec(&v, a, &r, err);
        if (rc == 0) {
            know(k, &r.body);
        }
        if (atomic_load(&k->s->is_closing)) {
            rc = -ECANCELED;
        }
    }
    if (rc == 0) {
        rc = oindex_iter_error(it, err);
    }
    oindex_iter_close(it);
    arena_free(a);
    return rc;
}

int files_sweep(struct ostore *s, uint64_t min_age_ns, uint64_t *ret_n, struct err *err)
{
    *ret_n = 0;
    if (atomic_load(&s->is_readonly)) {
        /* What the index does not name may be named by a record that cannot be read now. */
        return 0;
    }
    struct known k = {.s = s, .ids = omap_new()};
    /* First the ids that come meanwhile, then the index: what is committed is in one of them. */
    pthread_mutex_lock(&s->sweep_lock);
    s->sweep_new = omap_new();
    pthread_mutex_unlock(&s->sweep_lock);
    int rc = gather(&k, IX_OLD, err);
    rc = rc < 0 ? rc : gather(&k, IX_OBJECT, err);
    rc = rc < 0 ? rc : gather(&k, IX_PART, err);
    /* An object may have become an old version between the two walks. */
    rc = rc < 0 ? rc : gather(&k, IX_OLD, err);
    if (rc == 0 && k.has_weak) {
        atomic_store(&s->has_weak, true);
    }
    if (rc == 0) {
        rc = shard_sweep(s->shards, is_known, &k, min_age_ns, ret_n, err);
    }
    pthread_mutex_lock(&s->sweep_lock);
    omap_free(s->sweep_new, NULL);
    s->sweep_new = NULL;
    pthread_mutex_unlock(&s->sweep_lock);
    omap_free(k.ids, free);
    return rc;
}
