#include "snap/snap_names.h"

#include <errno.h>
#include <string.h>

#define MIN_SLOTS 1024u

uint64_t snap_names_at(const uint8_t name[SNAP_NAME_SIZE])
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) {
        v = v << 8 | name[i];
    }
    return v;
}

bool snap_name_is_zero(const uint8_t name[SNAP_NAME_SIZE])
{
    static const uint8_t zero[SNAP_NAME_SIZE];
    return memcmp(name, zero, SNAP_NAME_SIZE) == 0;
}

void snap_names_init(struct snap_names *s, size_t max)
{
    *s = (struct snap_names){.max = max < 4 ? 4 : max};
}

void snap_names_done(struct snap_names *s)
{
    free(s->slots);
    *s = (struct snap_names){.slots = NULL};
}

void snap_names_begin(struct snap_names *s, uint64_t lo)
{
    s->lo = lo;
    s->hi = 0;
    s->n = 0;
    if (s->slots) {
        memset(s->slots, 0, s->n_slots * SNAP_NAME_SIZE);
    }
}

bool snap_names_covers(const struct snap_names *s, const uint8_t name[SNAP_NAME_SIZE])
{
    uint64_t at = snap_names_at(name);
    return at >= s->lo && (s->hi == 0 || at < s->hi);
}

/* Names are as good as random: their own bytes are the hash. Others than the first, for within
 * a range those are alike. */
static size_t home(const struct snap_names *s, const uint8_t *name)
{
    uint64_t v = 0;
    memcpy(&v, name + 16, sizeof(v));
    return (size_t)v & (s->n_slots - 1);
}

static size_t find(const struct snap_names *s, const uint8_t *name)
{
    size_t i = home(s, name);
    while (!snap_name_is_zero(s->slots[i]) && memcmp(s->slots[i], name, SNAP_NAME_SIZE) != 0) {
        i = (i + 1) & (s->n_slots - 1);
    }
    return i;
}

bool snap_names_has(const struct snap_names *s, const uint8_t name[SNAP_NAME_SIZE])
{
    return s->n && !snap_name_is_zero(name) && !snap_name_is_zero(s->slots[find(s, name)]);
}

static int grow(struct snap_names *s)
{
    struct snap_names more = *s;
    more.n_slots = s->n_slots ? s->n_slots * 2 : MIN_SLOTS;
    more.slots = calloc(more.n_slots, SNAP_NAME_SIZE);
    if (!more.slots) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < s->n_slots; i++) {
        if (!snap_name_is_zero(s->slots[i])) {
            memcpy(more.slots[find(&more, s->slots[i])], s->slots[i], SNAP_NAME_SIZE);
        }
    }
    free(s->slots);
    *s = more;
    return 0;
}

/* Drops the upper half of the range, in place: after holes were made, each run is put in again
 * from its beginning, so that no name is behind a hole that it once passed. */
static void halve(struct snap_names *s)
{
    uint64_t last = s->hi - 1; /* hi 0: UINT64_MAX */
    size_t first = 0;
    s->hi = s->lo + (last - s->lo) / 2 + 1;
    while (!snap_name_is_zero(s->slots[first])) {
        first++; /* there is an empty place: a quarter is */
    }
    for (size_t i = 0; i < s->n_slots; i++) {
        if (!snap_name_is_zero(s->slots[i]) && !snap_names_covers(s, s->slots[i])) {
            memset(s->slots[i], 0, SNAP_NAME_SIZE);
            s->n--;
        }
    }
    for (size_t k = 1; k < s->n_slots; k++) {
        uint8_t name[SNAP_NAME_SIZE];
        size_t i = (first + k) & (s->n_slots - 1);
        if (!snap_name_is_zero(s->slots[i])) {
            memcpy(name, s->slots[i], sizeof(name));
            memset(s->slots[i], 0, SNAP_NAME_SIZE);
            memcpy(s->slots[find(s, name)], name, sizeof(name));
        }
    }
}

int snap_names_add(struct snap_names *s, const uint8_t name[SNAP_NAME_SIZE])
{
    if (snap_name_is_zero(name) || !snap_names_covers(s, name)) {
        return 0;
    }
    if (s->n_slots == 0 || s->n + 1 > s->n_slots / 4 * 3) {
        int r = grow(s);
        if (r < 0) {
            return r;
        }
    }
    size_t i = find(s, name);
    if (!snap_name_is_zero(s->slots[i])) {
        return 0;
    }
    memcpy(s->slots[i], name, SNAP_NAME_SIZE);
    s->n++;
    while (s->n > s->max && s->hi != s->lo + 1) {
        halve(s);
    }
    return 0;
}
