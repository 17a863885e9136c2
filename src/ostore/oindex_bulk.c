#include "ostore/oindex_db.h"
#include "ostore/oindex_int.h"

#include "base/vec.h"
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define BULK_BYTES ((size_t)48 << 20)
#define N_LOADS    2u

/* An entry's bytes lie in the load: key, then value. */
struct entry {
    uint64_t head[3]; /* the first bytes of the key, big-endian: most comparisons end here */
    uint32_t at, n_value; /* n_value: DELETED */
    uint32_t n_key;
};
#define DELETED UINT32_MAX

struct load {
    char *p;
    size_t n;
    VEC(struct entry) e;
    bool is_full; /* belongs to the thread */
};

struct obulk {
    struct oindex *x;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    struct load loads[N_LOADS];
    unsigned cur;  /* that is filled */
    unsigned next; /* that the thread takes */
    unsigned n_files;
    bool is_stopping;
    int rc;
    struct err err;
};

static int compare(const void *a, const void *b, void *ctx)
{
    const struct entry *x = a, *y = b;
    const struct load *l = ctx;
    for (size_t i = 0; i < ARRAY_LEN(x->head); i++) {
        if (x->head[i] != y->head[i]) {
            return x->head[i] < y->head[i] ? -1 : 1;
        }
    }
    struct str kx = str_n(l->p + x->at, x->n_key), ky = str_n(l->p + y->at, y->n_key);
    int c = str_cmp(kx, ky);
    return c ? c : x->at < y->at ? -1 : 1; /* the later one comes last, and counts */
}

static void write_entries(struct load *l, rocksdb_sstfilewriter_t *w, char **text)
{
    for (size_t i = 0; i < l->e.n && !*text; i++) {
        const struct entry *e = &l->e.v[i];
        const char *key = l->p + e->at;
        if (i + 1 < l->e.n && e[1].head[2] == e->head[2] && e[1].n_key == e->n_key &&
            memcmp(l->p + e[1].at, key, e->n_key) == 0) {
            continue;
        }
        if (e->n_value == DELETED) {
            rocksdb_sstfilewriter_delete(w, key, e->n_key, text);
        } else {
            rocksdb_sstfilewriter_put(w, key, e->n_key, key + e->n_key, e->n_value, text);
        }
    }
    if (!*text) {
        rocksdb_sstfilewriter_finish(w, text);
    }
}

static int take_in(struct obulk *b, struct load *l, struct err *err)
{
    char path[PATH_MAX + 32], *text = NULL;
    const char *list[] = {path};
    (void)snprintf(path, sizeof(path), "%s/bulk-%u.sst", b->x->path, b->n_files++);
    qsort_r(l->e.v, l->e.n, sizeof(l->e.v[0]), compare, l);
    rocksdb_envoptions_t *env = rocksdb_envoptions_create();
    rocksdb_sstfilewriter_t *w = rocksdb_sstfilewriter_create(env, b->x->opts);
    rocksdb_sstfilewriter_open(w, path, &text);
    if (!text) {
        write_entries(l, w, &text);
    }
    rocksdb_sstfilewriter_destroy(w);
    rocksdb_envoptions_destroy(env);
    if (!text) {
        rocksdb_ingestexternalfileoptions_t *o = rocksdb_ingestexternalfileoptions_create();
        rocksdb_ingestexternalfileoptions_set_move_files(o, 1);
        rocksdb_ingest_external_file(b->x->db, list, 1, o, &text);
        rocksdb_ingestexternalfileoptions_destroy(o);
    }
    if (text) {
        (void)remove(path);
        return oindex_failed(text, err, "bulk");
    }
    return 0;
}

static void *work(void *arg)
{
    struct obulk *b = arg;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        struct load *l = &b->loads[b->next];
        if (!l->is_full) {
            if (b->is_stopping) {
                break;
            }
            pthread_cond_wait(&b->cond, &b->lock);
            continue;
        }
        b->next = (b->next + 1) % N_LOADS;
        bool is_good = b->rc == 0;
        struct err err = ERR_INIT;
        pthread_mutex_unlock(&b->lock);
        int rc = is_good ? take_in(b, l, &err) : 0;
        pthread_mutex_lock(&b->lock);
        if (rc < 0) {
            b->rc = rc;
            b->err = err;
        }
        l->n = l->e.n = 0;
        l->is_full = false;
        pthread_cond_broadcast(&b->cond);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

struct obulk *obulk_new(struct oindex *x)
{
    struct obulk *b = calloc(1, sizeof(*b));
    if (!b) {
        abort();
    }
    b->x = x;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->cond, NULL);
    for (unsigned i = 0; i < N_LOADS; i++) {
        b->loads[i].p = malloc(BULK_BYTES);
        if (!b->loads[i].p) {
            abort();
        }
    }
    if (pthread_create(&b->thread, NULL, work, b) != 0) {
        abort();
    }
    return b;
}

void obulk_free(struct obulk *b)
{
    if (!b) {
        return;
    }
    pthread_mutex_lock(&b->lock);
    b->is_stopping = true;
    pthread_cond_broadcast(&b->cond);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    for (unsigned i = 0; i < N_LOADS; i++) {
        free(b->loads[i].p);
        vec_free(&b->loads[i].e);
    }
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->cond);
    free(b);
}

/* Gives the load at hand to the thread, and waits until the next one is free. */
static void turn(struct obulk *b)
{
    pthread_mutex_lock(&b->lock);
    b->loads[b->cur].is_full = true;
    b->cur = (b->cur + 1) % N_LOADS;
    pthread_cond_broadcast(&b->cond);
    while (b->loads[b->cur].is_full) {
        pthread_cond_wait(&b->cond, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

static char *room(struct obulk *b, size_t n)
{
    if (b->loads[b->cur].n + n > BULK_BYTES) {
        turn(b);
    }
    struct load *l = &b->loads[b->cur];
    char *p = l->p + l->n;
    l->n += n;
    return p;
}

static void note(struct obulk *b, const char *key, size_t n_key, uint32_t n_value)
{
    struct load *l = &b->loads[b->cur];
    struct entry e = {
        .at = (uint32_t)(key - l->p), .n_key = (uint32_t)n_key, .n_value = n_value};
    memcpy(e.head, key, MIN(n_key, sizeof(e.head)));
    for (size_t i = 0; i < ARRAY_LEN(e.head); i++) {
        e.head[i] = be64toh(e.head[i]);
    }
    vec_push(&l->e, e);
}

void obulk_put(struct obulk *b, struct str key, struct str first, struct str second)
{
    char *p = room(b, key.n + first.n + second.n);
    memcpy(p, key.p, key.n);
    memcpy(p + key.n, first.p, first.n);
    if (second.n) {
        memcpy(p + key.n + first.n, second.p, second.n);
    }
    note(b, p, key.n, (uint32_t)(first.n + second.n));
}

void obulk_del(struct obulk *b, struct str key)
{
    char *p = room(b, key.n);
    memcpy(p, key.p, key.n);
    note(b, p, key.n, DELETED);
}

bool obulk_is_empty(const struct obulk *b)
{
    struct obulk *w = (struct obulk *)(uintptr_t)b;
    pthread_mutex_lock(&w->lock);
    bool is = b->loads[b->cur].e.n == 0 && !b->loads[(b->cur + 1) % N_LOADS].is_full;
    pthread_mutex_unlock(&w->lock);
    return is;
}

int obulk_flush(struct obulk *b, struct err *err)
{
    if (b->loads[b->cur].e.n > 0) {
        turn(b);
    }
    pthread_mutex_lock(&b->lock);
    for (unsigned i = 0; i < N_LOADS; i++) {
        while (b->loads[i].is_full) {
            pthread_cond_wait(&b->cond, &b->lock);
        }
    }
    int rc = b->rc < 0 ? fail(err, b->rc, b->err.name, "%s", b->err.msg) : 0;
    pthread_mutex_unlock(&b->lock);
    return rc;
}
