/* Names that are in use this moment, against a collection that deletes what nothing names. */
#include "snap/snap_int.h"

#define TOUCHED_MAX (2u << 20) /* names that are stored while one range is collected: 128 MiB */

static int name_cmp(const void *a, const void *b)
{
    return memcmp(a, b, SNAP_NAME);
}

static bool is_doomed(const struct snap_store *s, struct str account, const uint8_t *name)
{
    return s->n_doomed && str_eq(account, s->account) &&
           bsearch(name, s->doomed, s->n_doomed, SNAP_NAME, name_cmp);
}

/* Under the lock. */
static void touch(struct snap_store *s, struct str account, const uint8_t *name)
{
    if (!s->is_collecting || !str_eq(account, s->account)) {
        return;
    }
    if (s->touched.n >= TOUCHED_MAX || snap_names_add(&s->touched, name) < 0) {
        s->is_touched_full = true;
    }
}

void snap_touch(struct snap_store *s, struct str account, const uint8_t name[SNAP_NAME])
{
    pthread_mutex_lock(&s->mu);
    while (is_doomed(s, account, name)) {
        pthread_cond_wait(&s->deleted, &s->mu);
    }
    touch(s, account, name);
    pthread_mutex_unlock(&s->mu);
}

void snap_hold(struct snap_store *s, struct snap_hold *h, struct str account,
               const uint8_t name[SNAP_NAME])
{
    pthread_mutex_lock(&s->mu);
    while (is_doomed(s, account, name)) {
        pthread_cond_wait(&s->deleted, &s->mu);
    }
    touch(s, account, name);
    *h = (struct snap_hold){
        .account = account, .name = name, .next = s->holds, .prev = &s->holds};
    if (h->next) {
        h->next->prev = &h->next;
    }
    s->holds = h;
    pthread_mutex_unlock(&s->mu);
}

void snap_let_go(struct snap_store *s, struct snap_hold *h)
{
    pthread_mutex_lock(&s->mu);
    *h->prev = h->next;
    if (h->next) {
        h->next->prev = h->prev;
    }
    pthread_mutex_unlock(&s->mu);
}

void *snap_scratch_take(struct snap_store *s)
{
    void *p = NULL;
    pthread_mutex_lock(&s->mu);
    if (s->n_scratch) {
        p = s->scratch[--s->n_scratch];
    }
    pthread_mutex_unlock(&s->mu);
    return p ? p : aligned_alloc(64, (SNAP_SEALED + 63) / 64 * 64);
}

void snap_scratch_give(struct snap_store *s, void *p)
{
    pthread_mutex_lock(&s->mu);
    if (p && s->n_scratch < SNAP_SCRATCH) {
        s->scratch[s->n_scratch++] = p;
        p = NULL;
    }
    pthread_mutex_unlock(&s->mu);
    free(p);
}
