/* The lifecycle worker: walks buckets that have rules and starts the deletes they ask for. */
#include "predastore/lifecycle.h"

#include "base/log.h"
#include "base/time.h"
#include "loop/ticker.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

LOG_MODULE("s3.lifecycle");

#define EVERY_NS    (300 * NS_PER_S)
#define NS_PER_DAY  (UINT64_C(86400) * NS_PER_S)
#define PAGE        1000u
#define IN_FLIGHT   64u
#define ARENA_MAX   (64u << 20)
#define REST_FACTOR 4 /* pauses: so many times as long as the work of a page took */
#define REST_MAX_NS (2 * NS_PER_S)
#define BUCKETS_MAX 100000u

/* What was done about a bucket; of buckets that are gone an entry stays until the restart. */
struct walked {
    uint64_t bucket, day;
    const struct obucket *seen; /* ref: whose rules these were */
};

struct lifecycle {
    struct lifecycle_opts o;
    struct ticker *ticker;
    atomic_bool is_stopping;
    struct walked *walked;
    size_t n_walked;
    pthread_mutex_t mu;           /* over stats; a leaf */
    struct lifecycle_stats stats; /* GUARDED_BY(mu) */
};

/* One delete or abort on its way. */
struct errand {
    struct ochange change;
    struct batch *batch;
    uint64_t *counter; /* of the stats */
};

/* Errands of one page; their strings live in its arena. */
struct batch {
    struct lifecycle *l;
    const struct obucket *bucket;
    struct arena *arena;
    struct errand v[IN_FLIGHT];
    size_t n; /* begun */
    pthread_mutex_t mu;
    pthread_cond_t cond;
    size_t n_done; /* GUARDED_BY(mu) */
};

static uint64_t now_of(const struct lifecycle *l)
{
    return l->o.now_ns ? l->o.now_ns(l->o.now_ctx) : time_wall_ns();
}

static void count(struct lifecycle *l, uint64_t *which, uint64_t n)
{
    pthread_mutex_lock(&l->mu);
    *which += n;
    pthread_mutex_unlock(&l->mu);
}

void lifecycle_stats(struct lifecycle *l, struct lifecycle_stats *ret)
{
    pthread_mutex_lock(&l->mu);
    *ret = l->stats;
    pthread_mutex_unlock(&l->mu);
}

/* ---- errands ---- */

static void batch_init(struct batch *b, struct lifecycle *l, const struct obucket *bucket,
                       struct arena *a)
{
    *b = (struct batch){.l = l, .bucket = bucket, .arena = a};
    pthread_mutex_init(&b->mu, NULL);
    pthread_cond_init(&b->cond, NULL);
}

static void on_done(struct ochange *ch)
{
    struct errand *e = ch->ctx;
    struct batch *b = e->batch;
    pthread_mutex_lock(&b->mu);
    b->n_done++;
    pthread_cond_signal(&b->cond);
    pthread_mutex_unlock(&b->mu);
}

/* Waits for all of them. What changed meanwhile is not our affair any more; what failed comes up
 * at the next walk. */
static int batch_wait(struct batch *b)
{
    int worst = 0;
    pthread_mutex_lock(&b->mu);
    while (b->n_done < b->n) {
        pthread_cond_wait(&b->cond, &b->mu);
    }
    pthread_mutex_unlock(&b->mu);
    for (size_t i = 0; i < b->n; i++) {
        const struct ochange *ch = &b->v[i].change;
        bool is_changed = ch->err.name && (str_eqc(str_c(ch->err.name), "PreconditionFailed") ||
                                           ch->rc == -ENOENT);
        if (ch->rc == 0) {
            count(b->l, b->v[i].counter, 1);
        } else if (!is_changed) {
            log_warn_rl("lifecycle.failed", KV_STR("bucket", b->bucket->name),
                        KV_STR("key", ch->rec.key), KV_ERR(&ch->err));
            count(b->l, &b->l->stats.n_failed, 1);
            worst = ch->rc;
        }
    }
    b->n = b->n_done = 0;
    return worst;
}

static void batch_done(struct batch *b)
{
    pthread_cond_destroy(&b->cond);
    pthread_mutex_destroy(&b->mu);
}

/* A change of a key, in the name of nobody: its record says the bucket's owner. */
static struct ochange *batch_add(struct batch *b, enum ochange_kind kind, struct str key,
                                 uint64_t *counter)
{
    if (b->n == IN_FLIGHT) {
        (void)batch_wait(b);
    }
    struct errand *e = &b->v[b->n++];
    *e = (struct errand){.batch = b, .counter = counter};
    e->change = (struct ochange){.kind = kind,
                                 .bucket = b->bucket,
                                 .cond = OCHANGE_IF_NONE,
                                 .target_cond = OCHANGE_IF_NONE,
                                 .done = on_done,
                                 .ctx = e};
    e->change.rec.key = key;
    e->change.rec.account = b->bucket->account;
    e->change.rec.principal = STR("lifecycle");
    return &e->change;
}

/* ---- versions ---- */

/* The walk of one key's versions, newest first, over the ends of pages. */
struct key_walk {
    struct str key;        /* owned: heap */
    uint64_t newer_ns;     /* when the version before this one came */
    unsigned n_noncurrent; /* passed so far */
    /* A current delete marker waits until it is known whether there is something behind it. */
    bool is_marker_waiting;
    uint8_t marker[OREC_ID_SIZE];
    uint64_t marker_ns, marker_lsn;
};

static void act(struct batch *b, const struct s3_life *rules, const struct s3_life_object *o,
                const uint8_t version[OREC_ID_SIZE], uint64_t lsn)
{
    struct lifecycle_stats *st = &b->l->stats;
    uint64_t *counter = &st->n_expired;
    enum s3_life_action what = s3_life_object(rules, o, now_of(b->l), NULL);
    switch (what) {
    case S3_LIFE_KEEP: return;
    case S3_LIFE_EXPIRE: break;
    case S3_LIFE_DELETE_VERSION: counter = &st->n_versions; break;
    case S3_LIFE_DELETE_MARKER: counter = &st->n_markers; break;
    }
    struct ochange *ch = batch_add(b, OCHANGE_DELETE, o->key, counter);
    if (what != S3_LIFE_EXPIRE) {
        ch->is_version = true;
        memcpy(ch->rec.version, version, OREC_ID_SIZE);
    }
    ch->cond.lsn = lsn;
    ochange_start(b->l->o.store, ch);
}

static void settle_marker(struct batch *b, const struct s3_life *rules, struct key_walk *w,
                          bool is_only)
{
    if (!w->is_marker_waiting) {
        return;
    }
    w->is_marker_waiting = false;
    const struct s3_life_object o = {.key = arena_str_dup(b->arena, w->key),
                                     .mtime_ns = w->marker_ns,
                                     .is_current = true,
                                     .is_marker = true,
                                     .is_only_version = is_only,
                                     .is_versioned = true};
    if (str_is_set(o.key)) {
        act(b, rules, &o, w->marker, w->marker_lsn);
    }
}

static int begin_key(struct key_walk *w, struct str key)
{
    char *copy = malloc(key.n + 1);
    if (!copy) {
        return -ENOMEM;
    }
    memcpy(copy, key.p, key.n);
    free((char *)(uintptr_t)w->key.p);
    *w = (struct key_walk){.key = str_n(copy, key.n)};
    return 0;
}

static int see_version(struct batch *b, const struct s3_life *rules, struct key_walk *w,
                       const struct oversion *v)
{
    uint64_t lsn = v->rec.origin_lsn ? v->rec.origin_lsn : v->rec.lsn;
    bool is_same = str_is_set(w->key) && str_eq(w->key, v->rec.key);
    settle_marker(b, rules, w, !is_same);
    if (!is_same && begin_key(w, v->rec.key) < 0) {
        return -ENOMEM;
    }
    if (v->is_latest && v->rec.kind == OREC_MARKER) {
        w->is_marker_waiting = true;
        memcpy(w->marker, v->rec.version, OREC_ID_SIZE);
        w->marker_ns = v->rec.time_ns;
        w->marker_lsn = lsn;
    } else {
        struct s3_tag *tags = arena_array(b->arena, v->rec.tags.n + 1, sizeof(*tags));
        if (!tags) {
            return -ENOMEM;
        }
        for (size_t i = 0; i < v->rec.tags.n; i++) {
            tags[i].key = v->rec.tags.v[i].name;
            tags[i].value = v->rec.tags.v[i].value;
        }
        const struct s3_life_object o = {
            .key = v->rec.key,
            .mtime_ns = v->rec.time_ns,
            .size = v->rec.size,
            .tags = tags,
            .n_tags = v->rec.tags.n,
            .is_current = v->is_latest,
            .is_marker = v->rec.kind == OREC_MARKER,
            .is_versioned = b->bucket->versioning != OSTORE_UNVERSIONED,
            .noncurrent_since_ns = w->newer_ns,
            .n_newer_noncurrent = w->n_noncurrent,
        };
        act(b, rules, &o, v->rec.version, lsn);
    }
    w->n_noncurrent += !v->is_latest;
    w->newer_ns = v->rec.time_ns;
    return 0;
}

/* ---- walks ---- */

/* What all enabled rules have in common at the front: only that part of the bucket is listed. */
static struct str common_prefix(const struct s3_life *rules)
{
    struct str common = STR_NONE;
    for (size_t i = 0; i < rules->n_rules; i++) {
        const struct s3_life_rule *r = &rules->rules[i];
        struct str p = r->has_filter ? r->filter.prefix : r->prefix;
        if (!str_eqc(r->status, "Enabled")) {
            continue;
        }
        if (!str_is_set(common)) {
            common = str_is_set(p) ? p : STR("");
            continue;
        }
        size_t n = 0;
        while (n < common.n && n < p.n && common.p[n] == p.p[n]) {
            n++;
        }
        common.n = n;
    }
    return common;
}

/* Gives the machine back to those who wait for answers. */
static void rest(const struct lifecycle *l, uint64_t work_ns)
{
    uint64_t left = work_ns * REST_FACTOR < REST_MAX_NS ? work_ns * REST_FACTOR : REST_MAX_NS;
    while (!l->o.is_eager && left > 0 && !atomic_load(&l->is_stopping)) {
        uint64_t ns = left < 50 * NS_PER_MS ? left : 50 * NS_PER_MS;
        const struct timespec ts = {.tv_nsec = (long)ns};
        (void)nanosleep(&ts, NULL);
        left -= ns;
    }
}

static int walk_page(struct batch *b, const struct s3_life *rules,
                     const struct olist_page *page, struct key_walk *w)
{
    int r = 0;
    for (size_t i = 0; i < page->n && r == 0; i++) {
        const struct olist_entry *e = &page->v[i];
        const struct olist_upload *u = &e->upload;
        if (w) {
            r = see_version(b, rules, w, &e->version);
        } else if (s3_life_upload(rules, u->key, u->rec.time_ns, now_of(b->l), NULL)) {
            struct ochange *ch = batch_add(b, OCHANGE_ABORT, u->key, &b->l->stats.n_uploads);
            memcpy(ch->rec.upload, u->upload, OREC_ID_SIZE);
            ochange_start(b->l->o.store, ch);
        }
    }
    count(b->l, &b->l->stats.n_seen, page->n);
    return r;
}

/* All pages of one kind. */
static int walk(struct lifecycle *l, const struct obucket *bucket, const struct s3_life *rules,
                enum olist_kind kind, struct err *err)
{
    struct key_walk keys = {0};
    struct str after = STR_NONE; /* heap */
    uint8_t after_id[OREC_ID_SIZE];
    bool is_id = false, is_more = true;
    int r = 0;
    while (r == 0 && is_more && !atomic_load(&l->is_stopping)) {
        AUTO(arena_freep) struct arena *a = arena_new(ARENA_MAX);
        struct batch batch;
        struct olist_page page = {0};
        const struct olist_query q = {.kind = kind,
                                      .prefix = common_prefix(rules),
                                      .delimiter = STR_NONE,
                                      .after = after,
                                      .after_id = is_id ? after_id : NULL,
                                      .max = PAGE};
        uint64_t start = time_mono_ns();
        batch_init(&batch, l, bucket, a);
        r = ostore_list(l->o.store, bucket, &q, a, &page, err);
        if (r == 0) {
            r = walk_page(&batch, rules, &page, kind == OLIST_UPLOADS ? NULL : &keys);
            is_more = page.is_truncated;
        }
        if (r == 0 && !is_more && kind != OLIST_UPLOADS) {
            settle_marker(&batch, rules, &keys, true);
        }
        int failed = batch_wait(&batch);
        if (r == 0 && failed < 0) {
            r = fail(err, failed, "LifecycleFailed", "a delete failed");
        }
        batch_done(&batch);
        is_id = page.is_next_id;
        memcpy(after_id, page.next_id, sizeof(after_id));
        free((char *)(uintptr_t)after.p);
        char *copy = page.next.n ? malloc(page.next.n) : NULL;
        if (copy) {
            memcpy(copy, page.next.p, page.next.n);
        }
        after = copy ? str_n(copy, page.next.n) : STR_NONE;
        is_more = is_more && copy;
        rest(l, time_mono_ns() - start);
    }
    free((char *)(uintptr_t)after.p);
    free((char *)(uintptr_t)keys.key.p);
    return r;
}

static bool wants_uploads(const struct s3_life *rules)
{
    bool is = false;
    for (size_t i = 0; i < rules->n_rules; i++) {
        is = is || (rules->rules[i].has_abort && str_eqc(rules->rules[i].status, "Enabled"));
    }
    return is;
}

static bool wants_objects(const struct s3_life *rules)
{
    bool is = false;
    for (size_t i = 0; i < rules->n_rules; i++) {
        is = is || ((rules->rules[i].has_expiration || rules->rules[i].has_noncurrent) &&
                    str_eqc(rules->rules[i].status, "Enabled"));
    }
    return is;
}

static int walk_bucket(struct lifecycle *l, const struct obucket *bucket, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_MAX);
    struct s3_life rules = {0};
    int r = lifecycle_rules(a, bucket, &rules, err);
    if (r <= 0) {
        return r;
    }
    count(l, &l->stats.n_walks, 1);
    r = wants_uploads(&rules) ? walk(l, bucket, &rules, OLIST_UPLOADS, err) : 0;
    if (r == 0 && wants_objects(&rules)) {
        r = walk(l, bucket, &rules,
                 bucket->versioning == OSTORE_UNVERSIONED ? OLIST_OBJECTS : OLIST_VERSIONS,
                 err);
    }
    return r;
}

/* ---- turns ---- */

static struct walked *find_walked(struct lifecycle *l, uint64_t number)
{
    for (size_t i = 0; i < l->n_walked; i++) {
        if (l->walked[i].bucket == number) {
            return &l->walked[i];
        }
    }
    return NULL;
}

static void note_walked(struct lifecycle *l, const struct obucket *b, uint64_t day)
{
    struct walked *w = find_walked(l, b->number);
    if (!w && l->n_walked < BUCKETS_MAX) {
        struct walked *v = realloc(l->walked, (l->n_walked + 1) * sizeof(*v));
        if (!v) {
            return; /* it is walked again: no harm */
        }
        l->walked = v;
        w = &v[l->n_walked++];
        *w = (struct walked){.bucket = b->number};
    }
    if (w) {
        obucket_unref(w->seen);
        w->seen = obucket_ref(b);
        w->day = day;
    }
}

static void turn_bucket(struct lifecycle *l, const struct obucket *b)
{
    struct err e = ERR_INIT;
    uint64_t day = now_of(l) / NS_PER_DAY;
    struct str conf = b->conf[OCONF_LIFECYCLE];
    const struct walked *w = conf.n ? find_walked(l, b->number) : NULL;
    if (!conf.n || (w && w->day == day && str_eq(w->seen->conf[OCONF_LIFECYCLE], conf))) {
        return;
    }
    int r = walk_bucket(l, b, &e);
    if (r < 0 && r != -ENOENT) {
        log_warn_rl("lifecycle.walk_failed", KV_STR("bucket", b->name), KV_ERR(&e));
    } else if (!atomic_load(&l->is_stopping)) {
        note_walked(l, b, day);
    }
}

static void turn(void *ctx)
{
    struct lifecycle *l = ctx;
    struct str after = STR_NONE;
    bool is_more = true;
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_MAX);
    while (is_more && !atomic_load(&l->is_stopping)) {
        struct obucket_list list = {0};
        struct err e = ERR_INIT;
        if (ostore_bucket_list(l->o.store, STR_NONE, STR_NONE, after, PAGE, a, &list, &e) < 0) {
            log_warn_rl("lifecycle.list_failed", KV_ERR(&e));
            break;
        }
        for (size_t i = 0; i < list.n; i++) {
            if (!atomic_load(&l->is_stopping)) {
                turn_bucket(l, list.v[i]);
            }
            after = i + 1 == list.n ? arena_str_dup(a, list.v[i]->name) : after;
            obucket_unref(list.v[i]);
        }
        is_more = list.is_truncated && list.n > 0 && str_is_set(after);
    }
    count(l, &l->stats.n_turns, 1);
}

void lifecycle_turn(struct lifecycle *l)
{
    turn(l);
}

struct lifecycle *lifecycle_start(const struct lifecycle_opts *o)
{
    struct lifecycle *l = calloc(1, sizeof(*l));
    if (!l) {
        abort();
    }
    l->o = *o;
    pthread_mutex_init(&l->mu, NULL);
    if (o->every_ns != UINT64_MAX) {
        l->ticker = ticker_start(turn, l, o->every_ns ? o->every_ns : EVERY_NS);
    }
    return l;
}

void lifecycle_stop(struct lifecycle *l)
{
    if (!l) {
        return;
    }
    atomic_store(&l->is_stopping, true);
    ticker_stop(l->ticker);
    for (size_t i = 0; i < l->n_walked; i++) {
        obucket_unref(l->walked[i].seen);
    }
    free(l->walked);
    pthread_mutex_destroy(&l->mu);
    free(l);
}
