#include "net/http_peers.h"

#include "base/rand.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define N_BUCKETS 1024u

struct entry {
    struct entry *next;
    uint64_t key[2];
    unsigned n;
};

struct http_peers {
    unsigned max;
    uint64_t seed; /* an attacker must not choose the bucket */
    pthread_mutex_t mu;
    struct entry *buckets[N_BUCKETS]; /* GUARDED_BY(mu) */
};

struct http_peers *http_peers_new(unsigned max_per_address)
{
    struct http_peers *p = calloc(1, sizeof(*p));
    if (!p) {
        abort();
    }
    p->max = max_per_address;
    p->seed = rand_u64() | 1;
    pthread_mutex_init(&p->mu, NULL);
    return p;
}

void http_peers_free(struct http_peers *p)
{
    if (!p) {
        return;
    }
    for (size_t i = 0; i < N_BUCKETS; i++) {
        while (p->buckets[i]) {
            struct entry *e = p->buckets[i];
            p->buckets[i] = e->next;
            free(e);
        }
    }
    pthread_mutex_destroy(&p->mu);
    free(p);
}

/* False for addresses that are not counted. IPv4 in IPv6 counts as the IPv4 address. */
static bool make_key(const struct sockaddr_storage *a, uint64_t key[2])
{
    key[0] = key[1] = 0;
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a;
        key[0] = 1;
        key[1] = in->sin_addr.s_addr;
        return true;
    }
    if (a->ss_family != AF_INET6) {
        return false;
    }
    const struct sockaddr_in6 *in6 = (const void *)a;
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
        uint32_t v4 = 0;
        memcpy(&v4, in6->sin6_addr.s6_addr + 12, 4);
        key[0] = 1;
        key[1] = v4;
        return true;
    }
    key[0] = 2;
    memcpy(&key[1], in6->sin6_addr.s6_addr, 8);
    return true;
}

static struct entry **find(struct http_peers *p, const uint64_t key[2])
{
    uint64_t h = (key[1] ^ key[0] * UINT64_C(0x9e3779b97f4a7c15)) * p->seed;
    struct entry **at = &p->buckets[(h >> 40) % N_BUCKETS];
    while (*at && ((*at)->key[0] != key[0] || (*at)->key[1] != key[1])) {
        at = &(*at)->next;
    }
    return at;
}

int http_peers_take(struct http_peers *p, const struct sockaddr_storage *a)
{
    uint64_t key[2];
    if (!make_key(a, key)) {
        return 0;
    }
    int r = 0;
    pthread_mutex_lock(&p->mu);
    struct entry **at = find(p, key);
    if (!*at) {
        struct entry *e = calloc(1, sizeof(*e));
        if (!e) {
            abort();
        }
        e->key[0] = key[0];
        e->key[1] = key[1];
        *at = e;
    }
    if ((*at)->n >= p->max) {
        r = -EBUSY;
    } else {
        (*at)->n++;
    }
    pthread_mutex_unlock(&p->mu);
    return r;
}

void http_peers_give(struct http_peers *p, const struct sockaddr_storage *a)
{
    uint64_t key[2];
    if (!make_key(a, key)) {
        return;
    }
    pthread_mutex_lock(&p->mu);
    struct entry **at = find(p, key);
    struct entry *e = *at;
    assert(e && e->n > 0);
    if (--e->n == 0) {
        *at = e->next;
        free(e);
    }
    pthread_mutex_unlock(&p->mu);
}
