/* A skip list: simple, ordered, O(log n) expected; levels come from a per-map xorshift, which a
 * client cannot steer by choosing keys. */
#include "base/omap.h"

#include "base/rand.h"

#include <stdint.h>

#define LEVELS 20

struct omap_node {
    void *value;
    size_t key_n;
    const char *key_p;
    int n_levels;
    struct omap_node *next[]; /* n_levels links, then the bytes of the key */
};

struct omap {
    struct omap_node *head[LEVELS];
    size_t n;
    uint64_t seed;
};

struct omap *omap_new(void)
{
    struct omap *m = calloc(1, sizeof(*m));
    if (!m) {
        abort();
    }
    m->seed = rand_u64() | 1;
    return m;
}

void omap_free(struct omap *m, void (*free_value)(void *))
{
    if (!m) {
        return;
    }
    struct omap_node *n = m->head[0];
    while (n) {
        struct omap_node *next = n->next[0];
        if (free_value) {
            free_value(n->value);
        }
        free(n);
        n = next;
    }
    free(m);
}

size_t omap_len(const struct omap *m)
{
    return m->n;
}

struct str omap_key(const struct omap_node *n)
{
    return str_n(n->key_p, n->key_n);
}

void *omap_value(const struct omap_node *n)
{
    return n->value;
}

struct omap_node *omap_next(const struct omap_node *n)
{
    return n->next[0];
}

/* Fills 'links' with the link on every level that points at the first node >= key; returns that
 * node. */
static struct omap_node *find(const struct omap *m, struct str key, struct omap_node ***links)
{
    struct omap_node *const *from = m->head;
    const struct omap_node *beyond = NULL; /* seen on the level above: not below the key */
    for (int l = LEVELS - 1; l >= 0; l--) {
        while (from[l] && from[l] != beyond && str_cmp(omap_key(from[l]), key) < 0) {
            from = from[l]->next;
        }
        beyond = from[l];
        if (links) {
            links[l] = (struct omap_node **)(uintptr_t)&from[l];
        }
    }
    return from[0];
}

static bool is_at(const struct omap_node *n, struct str key)
{
    return n && str_eq(omap_key(n), key);
}

void *omap_get(const struct omap *m, struct str key)
{
    struct omap_node *n = find(m, key, NULL);
    return is_at(n, key) ? n->value : NULL;
}

struct omap_node *omap_seek(const struct omap *m, struct str key)
{
    return find(m, key, NULL);
}

static int random_levels(struct omap *m)
{
    m->seed ^= m->seed << 13;
    m->seed ^= m->seed >> 7;
    m->seed ^= m->seed << 17;
    int n = 1;
    for (uint64_t bits = m->seed; n < LEVELS && (bits & 3) == 0; bits >>= 2) {
        n++;
    }
    return n;
}

void *omap_put(struct omap *m, struct str key, void *value)
{
    struct omap_node **links[LEVELS];
    struct omap_node *n = find(m, key, links);
    if (is_at(n, key)) {
        void *old = n->value;
        n->value = value;
        return old;
    }
    int levels = random_levels(m);
    size_t links_size = (size_t)levels * sizeof(struct omap_node *);
    n = malloc(sizeof(*n) + links_size + key.n + 1);
    if (!n) {
        abort();
    }
    char *bytes = (char *)n + sizeof(*n) + links_size;
    if (key.n) {
        memcpy(bytes, key.p, key.n);
    }
    bytes[key.n] = '\0';
    n->key_p = bytes;
    n->key_n = key.n;
    n->value = value;
    n->n_levels = levels;
    for (int l = 0; l < levels; l++) {
        n->next[l] = *links[l];
        *links[l] = n;
    }
    m->n++;
    return NULL;
}

void *omap_remove(struct omap *m, struct str key)
{
    struct omap_node **links[LEVELS];
    struct omap_node *n = find(m, key, links);
    if (!is_at(n, key)) {
        return NULL;
    }
    for (int l = 0; l < n->n_levels; l++) {
        *links[l] = n->next[l];
    }
    void *old = n->value;
    free(n);
    m->n--;
    return old;
}
