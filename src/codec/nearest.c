#include "codec/nearest.h"
#include "base/macro.h"

#define MAX_LEN 64u

/* Edits (one character put in, left out, changed, or two neighbours swapped) between two words.
 */
static size_t distance(struct str a, struct str b)
{
    size_t rows[3][MAX_LEN + 1];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t k = 0; k <= b.n; k++) {
        last[k] = k;
    }
    for (size_t i = 1; i <= a.n; i++) {
        now[0] = i;
        for (size_t k = 1; k <= b.n; k++) {
            size_t change = last[k - 1] + (a.p[i - 1] != b.p[k - 1]);
            now[k] = MIN(change, MIN(last[k], now[k - 1]) + 1);
            if (i > 1 && k > 1 && a.p[i - 1] == b.p[k - 2] && a.p[i - 2] == b.p[k - 1]) {
                now[k] = MIN(now[k], before[k - 2] + 1);
            }
        }
        size_t *t = before;
        before = last;
        last = now;
        now = t;
    }
    return last[b.n];
}

const char *nearest_word(struct str typed, const void *words, size_t n_words, size_t stride)
{
    const char *best = NULL;
    size_t best_distance = 0;
    if (typed.n > MAX_LEN) {
        return NULL;
    }
    for (size_t i = 0; i < n_words; i++) {
        const char *w = *(const char *const *)(const void *)((const char *)words + i * stride);
        struct str s = str_c(w);
        if (s.n > MAX_LEN) {
            continue;
        }
        size_t d = distance(typed, s);
        size_t limit =
            MAX(typed.n, s.n) / 3 + 1; /* "azz" is near "az", "x" is not near "node" */
        bool is_near = d <= limit && d < MAX(typed.n, s.n);
        if (is_near && (!best || d < best_distance)) {
            best = w;
            best_distance = d;
        }
    }
    return best;
}
