#include "ostore/ostore_pin.h"

#include "base/time.h"
#include <assert.h>
#include <time.h>

#define N_EPOCHS 64u
#define N_SLOTS  1024u

struct item {
    struct item *next;
    uint64_t stamp;
    uint8_t id[16];
    struct pin_victim v;
};
struct list {
    struct item *head, **tail;
};
struct pin {
    struct pin *next;
    uint8_t id[16];
    uint32_t n;
    struct item *waiting;
};

struct pins {
    pthread_mutex_t lock;
    pthread_cond_t wake, settled;
    pthread_t thread;
    bool is_stopping;
    pins_fn remove;
    void *ctx;
    uint64_t now, oldest; /* epochs */
    uint32_t n_in[N_EPOCHS];
    struct pin *slots[N_SLOTS];
    struct list young, ready; /* wait for epochs; can go */
    size_t n_items;           /* young, ready and being removed; not those that pins hold */
};

static void push(struct list *l, struct item *i)
{
    i->next = NULL;
    *l->tail = i;
    l->tail = &i->next;
}

static struct item *pop(struct list *l)
{
    struct item *i = l->head;
    if (i) {
        l->head = i->next;
        if (!l->head) {
            l->tail = &l->head;
        }
    }
    return i;
}

/* Under the lock: the oldest epoch that somebody is in, and a new one for those to come. */
static void turn_epochs(struct pins *p)
{
    while (p->oldest < p->now && p->n_in[p->oldest % N_EPOCHS] == 0) {
        p->oldest++;
    }
    if (p->young.head && p->now + 1 - p->oldest < N_EPOCHS &&
        p->young.head->stamp >= p->oldest) {
        p->now++;
        while (p->oldest < p->now && p->n_in[p->oldest % N_EPOCHS] == 0) {
            p->oldest++;
        }
    }
}

static struct pin **find(struct pins *p, const uint8_t id[16])
{
    uint32_t h;
    memcpy(&h, id, sizeof(h));
    struct pin **at = &p->slots[(h ^ (h >> 16)) % N_SLOTS];
    while (*at && memcmp((*at)->id, id, 16) != 0) {
        at = &(*at)->next;
    }
    return at;
}

/* Under the lock: moves what may go to 'ready', what is pinned to its pin. */
static void sort_young(struct pins *p)
{
    turn_epochs(p);
    while (p->young.head && p->young.head->stamp < p->oldest) {
        struct item *i = pop(&p->young);
        struct pin *pin = *find(p, i->id);
        if (pin) {
            i->next = pin->waiting;
            pin->waiting = i;
            p->n_items--;
        } else {
            push(&p->ready, i);
        }
    }
}

static void *reap(void *arg)
{
    struct pins *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        sort_young(p);
        struct item *i = pop(&p->ready);
        if (i) {
            pthread_mutex_unlock(&p->lock);
            p->remove(p->ctx, &i->v);
            free(i);
            pthread_mutex_lock(&p->lock);
            p->n_items--;
            continue;
        }
        pthread_cond_broadcast(&p->settled);
        if (p->is_stopping && !p->young.head) {
            break;
        }
        pthread_cond_wait(&p->wake, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct pins *pins_open(pins_fn remove, void *ctx)
{
    struct pins *p = calloc(1, sizeof(*p));
    if (!p) {
        abort();
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->settled, &attr);
    pthread_condattr_destroy(&attr);
    p->remove = remove;
    p->ctx = ctx;
    p->now = p->oldest = 1;
    p->young.tail = &p->young.head;
    p->ready.tail = &p->ready.head;
    if (pthread_create(&p->thread, NULL, reap, p) != 0) {
        abort();
    }
    return p;
}

void pins_close(struct pins *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    for (size_t i = 0; i < N_SLOTS; i++) {
        assert(!p->slots[i]); /* a reader is still open */
    }
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->settled);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

uint64_t pins_enter(struct pins *p)
{
    pthread_mutex_lock(&p->lock);
    uint64_t epoch = p->now;
    p->n_in[epoch % N_EPOCHS]++;
    pthread_mutex_unlock(&p->lock);
    return epoch;
}

void pins_leave(struct pins *p, uint64_t epoch)
{
    pthread_mutex_lock(&p->lock);
    if (--p->n_in[epoch % N_EPOCHS] == 0 && p->young.head) {
        pthread_cond_signal(&p->wake);
    }
    pthread_mutex_unlock(&p->lock);
}

void pins_hold(struct pins *p, const uint8_t id[16])
{
    pthread_mutex_lock(&p->lock);
    struct pin **at = find(p, id);
    if (!*at) {
        *at = calloc(1, sizeof(**at));
        if (!*at) {
            abort();
        }
        memcpy((*at)->id, id, 16);
    }
    (*at)->n++;
    pthread_mutex_unlock(&p->lock);
}

void pins_drop(struct pins *p, const uint8_t id[16])
{
    pthread_mutex_lock(&p->lock);
    struct pin **at = find(p, id), *pin = *at;
    assert(pin);
    if (--pin->n == 0) {
        *at = pin->next;
        while (pin->waiting) {
            struct item *i = pin->waiting;
            pin->waiting = i->next;
            push(&p->ready, i);
            p->n_items++;
        }
        free(pin);
        if (p->ready.head) {
            pthread_cond_signal(&p->wake);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

void pin_of_segment(uint64_t segment, uint8_t ret[16])
{
    /* No body has such an id: they are random. */
    memcpy(ret, &segment, sizeof(segment));
    memset(ret + 8, 0xff, 8);
}

void pins_bury(struct pins *p, const uint8_t id[16], const struct pin_victim *v)
{
    struct item *i = calloc(1, sizeof(*i));
    if (!i) {
        return; /* an orphan: the sweep finds it */
    }
    memcpy(i->id, id, 16);
    i->v = *v;
    pthread_mutex_lock(&p->lock);
    i->stamp = p->now;
    push(&p->young, i);
    p->n_items++;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void pins_settle(struct pins *p)
{
    uint64_t end = time_mono_ns() + NS_PER_S;
    struct timespec ts = {.tv_sec = (time_t)(end / NS_PER_S),
                          .tv_nsec = (long)(end % NS_PER_S)};
    pthread_mutex_lock(&p->lock);
    while (p->n_items > 0 && pthread_cond_timedwait(&p->settled, &p->lock, &ts) == 0) {}
    pthread_mutex_unlock(&p->lock);
}

static bool is_in(const struct item *i, const uint8_t body[16])
{
    while (i && (i->v.is_segment || memcmp(i->v.body.id, body, 16) != 0)) {
        i = i->next;
    }
    return i != NULL;
}

bool pins_is_buried(struct pins *p, const uint8_t body[16])
{
    pthread_mutex_lock(&p->lock);
    bool is = is_in(p->young.head, body) || is_in(p->ready.head, body);
    for (size_t i = 0; i < N_SLOTS && !is; i++) {
        for (const struct pin *pin = p->slots[i]; pin && !is; pin = pin->next) {
            is = is_in(pin->waiting, body);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return is;
}
