#include "crypto/secret.h"

#include "base/rand.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void secret_wipe(void *p, size_t n)
{
    if (n) {
        explicit_bzero(p, n);
    }
}

/* Takes the place of the old value; returns the new, zeroed bytes or NULL. */
static uint8_t *replace(struct secret *s, struct str bytes)
{
    uint8_t *p = malloc(bytes.n + 1);
    if (!p) {
        return NULL;
    }
    if (bytes.p && bytes.n) {
        memcpy(p, bytes.p,
               bytes.n); /* before the wipe: 'bytes' may be a part of the old value */
    }
    p[bytes.n] = 0;
    secret_done(s);
    *s = (struct secret){p, bytes.n};
    return p;
}

int secret_set(struct secret *s, struct str bytes)
{
    if (bytes.n > SECRET_MAX || !replace(s, bytes)) {
        return -ENOMEM;
    }
    return 0;
}

int secret_random(struct secret *s, size_t n)
{
    if (n > SECRET_MAX) {
        return -ENOMEM;
    }
    uint8_t *p = replace(s, str_n(NULL, n));
    if (!p) {
        return -ENOMEM;
    }
    rand_bytes(p, n);
    return 0;
}

void secret_done(struct secret *s)
{
    if (s->secret_p_) {
        secret_wipe(s->secret_p_, s->secret_n_);
        free(s->secret_p_);
    }
    *s = (struct secret)SECRET_INIT;
}

bool secret_is_set(const struct secret *s)
{
    return s->secret_p_ != NULL;
}

struct str secret_str(const struct secret *s)
{
    return str_n((const char *)s->secret_p_, s->secret_n_);
}

bool secret_eq(const struct secret *s, struct str other)
{
    return s->secret_p_ && other.p && str_eq_consttime(secret_str(s), other);
}
