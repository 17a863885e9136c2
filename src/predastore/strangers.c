#include "predastore/strangers.h"

#include "base/rand.h"
#include "base/time.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define N_ADDRESSES 512u /* those that share a place share what it has */
#define N_ABSENT    4096u
#define ABSENT_NS   (60 * NS_PER_S)

struct tokens {
    double n;
    uint64_t at_ns;
};

struct strangers {
    pthread_mutex_t lock;
    uint64_t seed; /* nobody chooses his neighbours */
    unsigned n_asking;
    struct tokens all, of[N_ADDRESSES];
    struct {
        uint64_t hash, until_ns;
    } absent[N_ABSENT];
};

struct strangers *strangers_new(void)
{
    struct strangers *s = calloc(1, sizeof(*s));
    if (!s) {
        abort();
    }
    pthread_mutex_init(&s->lock, NULL);
    s->seed = rand_u64();
    return s;
}

void strangers_free(struct strangers *s)
{
    if (s) {
        pthread_mutex_destroy(&s->lock);
        free(s);
    }
}

static uint64_t hash_of(const struct strangers *s, struct str text)
{
    uint64_t h = s->seed;
    for (size_t i = 0; i < text.n; i++) {
        h = (h ^ (uint8_t)text.p[i]) * UINT64_C(0x100000001b3);
        h ^= h >> 29;
    }
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 32);
}

static bool has_token(struct tokens *t, double per_s, double burst, uint64_t now_ns)
{
    double more = t->at_ns ? (double)(now_ns - t->at_ns) / (double)NS_PER_S * per_s : burst;
    t->n = MIN(t->n + more, burst);
    t->at_ns = now_ns;
    return t->n >= 1;
}

enum strangers_may strangers_may_ask(struct strangers *s, struct str key_id, struct str address,
                                     uint64_t now_ns)
{
    uint64_t h = hash_of(s, key_id);
    enum strangers_may ret = STRANGERS_LATER;
    pthread_mutex_lock(&s->lock);
    struct tokens *of = &s->of[hash_of(s, address) % N_ADDRESSES];
    if (s->absent[h % N_ABSENT].hash == h && s->absent[h % N_ABSENT].until_ns > now_ns) {
        ret = STRANGERS_UNKNOWN;
    } else if (s->n_asking < STRANGERS_AT_ONCE &&
               has_token(of, STRANGERS_PER_ADDRESS, STRANGERS_BURST, now_ns) &&
               has_token(&s->all, STRANGERS_ALL, STRANGERS_ALL, now_ns)) {
        of->n--;
        s->all.n--;
        s->n_asking++;
        ret = STRANGERS_ASK;
    }
    pthread_mutex_unlock(&s->lock);
    return ret;
}

void strangers_asked(struct strangers *s, struct str key_id, bool is_there, uint64_t now_ns)
{
    uint64_t h = hash_of(s, key_id);
    pthread_mutex_lock(&s->lock);
    s->n_asking--;
    if (!is_there) {
        s->absent[h % N_ABSENT].hash = h;
        s->absent[h % N_ABSENT].until_ns = now_ns + ABSENT_NS;
    }
    pthread_mutex_unlock(&s->lock);
}
