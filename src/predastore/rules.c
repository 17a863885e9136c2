#include "predastore/rules.h"

#include "base/omap.h"
#include "predastore/lifecycle.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>

#define PARSED_MAX (32u << 20)

/* The parsed bytes of one configuration. Its snapshot of the bucket keeps them, so that their
 * address names them: other snapshots of the same configuration share it. */
struct entry {
    struct rules *m;
    const struct obucket *b;
    enum obucket_conf which;
    struct arena *a;
    union {
        struct s3_life life;
        struct s3_cors cors;
    };
    unsigned refs;             /* GUARDED_BY(m->lock): of arenas, and one of the map */
    struct entry *prev, *next; /* GUARDED_BY(m->lock): in the map; used last comes last */
};

struct rules {
    pthread_mutex_t lock;
    struct omap *map; /* by number and kind */
    struct entry ring;
    size_t bytes;
    uint64_t n_parsed;
};

struct rules *rules_new(void)
{
    struct rules *m = calloc(1, sizeof(*m));
    if (!m) {
        abort();
    }
    pthread_mutex_init(&m->lock, NULL);
    m->map = omap_new();
    m->ring.prev = m->ring.next = &m->ring;
    return m;
}

static void entry_free(struct entry *e)
{
    arena_free(e->a);
    obucket_unref(e->b);
    free(e);
}

static size_t size_of(const struct entry *e)
{
    return sizeof(*e) + arena_used(e->a) + e->b->conf[e->which].n;
}

#define KEY_SIZE (sizeof(uint64_t) + 1)
static struct str key_of(const struct obucket *b, enum obucket_conf which, char buf[KEY_SIZE])
{
    memcpy(buf, &b->number, sizeof(b->number));
    buf[sizeof(b->number)] = (char)which;
    return str_n(buf, KEY_SIZE);
}

/* Under the lock. Returns what nobody holds any more. */
static struct entry *drop(struct rules *m, struct entry *e)
{
    char key[KEY_SIZE];
    omap_remove(m->map, key_of(e->b, e->which, key));
    e->prev->next = e->next;
    e->next->prev = e->prev;
    m->bytes -= size_of(e);
    return --e->refs == 0 ? e : NULL;
}

static void append(struct rules *m, struct entry *e)
{
    e->prev = m->ring.prev;
    e->next = &m->ring;
    e->prev->next = e;
    m->ring.prev = e;
}

void rules_free(struct rules *m)
{
    if (!m) {
        return;
    }
    while (m->ring.next != &m->ring) {
        struct entry *last = drop(m, m->ring.next);
        assert(last);
        entry_free(last);
    }
    omap_free(m->map, NULL);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void release(void *p)
{
    struct entry *e = p;
    struct rules *m = e->m;
    pthread_mutex_lock(&m->lock);
    bool is_last = --e->refs == 0;
    pthread_mutex_unlock(&m->lock);
    if (is_last) {
        entry_free(e);
    }
}

/* The entry of exactly these bytes, with a reference. */
static struct entry *find(struct rules *m, const struct obucket *b, enum obucket_conf which)
{
    char key[KEY_SIZE];
    pthread_mutex_lock(&m->lock);
    struct entry *e = omap_get(m->map, key_of(b, which, key));
    if (e && e->b->conf[which].p == b->conf[which].p) {
        e->refs++;
        e->prev->next = e->next;
        e->next->prev = e->prev;
        append(m, e);
    } else {
        e = NULL;
    }
    pthread_mutex_unlock(&m->lock);
    return e;
}

/* Into the map, in place of an older one of the bucket; what was not asked for in a long time
 * leaves. */
static void keep(struct rules *m, struct entry *e)
{
    char key[KEY_SIZE];
    struct entry *gone = NULL;
    pthread_mutex_lock(&m->lock);
    m->n_parsed++;
    struct entry *old = omap_get(m->map, key_of(e->b, e->which, key));
    while (old || (m->ring.next != &m->ring &&
                   (m->bytes + size_of(e) > RULES_BYTES || omap_len(m->map) >= RULES_MAX))) {
        struct entry *last = drop(m, old ? old : m->ring.next);
        old = NULL;
        if (last) {
            last->next = gone;
            gone = last;
        }
    }
    omap_put(m->map, key_of(e->b, e->which, key), e);
    append(m, e);
    e->refs++;
    m->bytes += size_of(e);
    pthread_mutex_unlock(&m->lock);
    while (gone) {
        struct entry *next = gone->next;
        entry_free(gone);
        gone = next;
    }
}

static int parse(struct entry *e, struct err *err)
{
    if (e->which == OCONF_LIFECYCLE) {
        int r = lifecycle_rules(e->a, e->b, &e->life, err);
        return r < 0 ? r : 0;
    }
    struct s3_cors_configuration conf = {0};
    int r = conf_get(e->a, e->b, &conf_cors, &conf, err);
    return r < 0 ? r : cors_convert(e->a, &conf, &e->cors, err);
}

static int get(struct rules *m, const struct obucket *b, enum obucket_conf which,
               struct arena *a, struct entry **ret, struct err *err)
{
    if (b->conf[which].n == 0) {
        return 0;
    }
    struct entry *e = find(m, b, which);
    if (!e) {
        e = calloc(1, sizeof(*e));
        if (!e) {
            abort();
        }
        *e = (struct entry){
            .m = m, .b = obucket_ref(b), .which = which, .a = arena_new(PARSED_MAX), .refs = 1};
        int r = parse(e, err);
        if (r < 0) {
            entry_free(e);
            return r;
        }
        keep(m, e);
    }
    if (arena_defer(a, release, e) < 0) {
        release(e);
        return fail(err, -ENOMEM, "InternalError", "the arena of a request is full");
    }
    *ret = e;
    return 1;
}

int rules_life(struct rules *m, const struct obucket *b, struct arena *a,
               const struct s3_life **ret, struct err *err)
{
    struct entry *e = NULL;
    int r = get(m, b, OCONF_LIFECYCLE, a, &e, err);
    if (r == 1) {
        *ret = &e->life;
    }
    return r;
}

int rules_cors(struct rules *m, const struct obucket *b, struct arena *a,
               const struct s3_cors **ret, struct err *err)
{
    struct entry *e = NULL;
    int r = get(m, b, OCONF_CORS, a, &e, err);
    if (r == 1) {
        *ret = &e->cors;
    }
    return r;
}

void rules_stats(struct rules *m, struct rules_stats *ret)
{
    pthread_mutex_lock(&m->lock);
    *ret =
        (struct rules_stats){.n_parsed = m->n_parsed, .n = omap_len(m->map), .bytes = m->bytes};
    pthread_mutex_unlock(&m->lock);
}
