#include "model/keys.h"
#include "base/rand.h"
#include <errno.h>
#include <stdio.h>

#define ID_DIGITS     17u
#define ID_DIGITS_OLD 8u

static struct str must(struct str s)
{
    if (!str_is_set(s)) {
        abort(); /* a key is small: the arena was used up by something that should have been
                    checked */
    }
    return s;
}

static char *put(char *p, struct str s, char end)
{
    memcpy(p, s.p, s.n);
    p[s.n] = end;
    return p + s.n + 1;
}

/* Without printf: a description of 1,000 instances looks up some 10,000 keys. */
static struct str key4(struct arena *a, const char *root, const char *kind, struct str account,
                       struct str id)
{
    struct str r = str_c(root), k = str_c(kind);
    account = account.p ? account : STR("");
    id = id.p ? id : STR("");
    size_t n = r.n + k.n + account.n + id.n + 3;
    char *p = arena_alloc(a, n + 1);
    if (!p) {
        return must(STR_NONE);
    }
    put(put(put(put(p, r, '/'), k, '/'), account, '/'), id, '\0');
    return str_n(p, n);
}

static struct str prefix(struct arena *a, const char *root, const char *kind,
                         struct str account)
{
    return must(str_is_set(account) ? arena_fmt(a, "%s/%s/%.*s/", root, kind, STR_ARG(account))
                                    : arena_fmt(a, "%s/%s/", root, kind));
}

struct str key_spec(struct arena *a, const char *kind, struct str account, struct str id)
{
    return key4(a, "spec", kind, account, id);
}

struct str key_status(struct arena *a, const char *kind, struct str account, struct str id)
{
    return key4(a, "status", kind, account, id);
}

struct str key_spec_prefix(struct arena *a, const char *kind, struct str account)
{
    return prefix(a, "spec", kind, account);
}

struct str key_status_prefix(struct arena *a, const char *kind, struct str account)
{
    return prefix(a, "status", kind, account);
}

struct str key_claim(struct arena *a, const char *what, struct str x, struct str y)
{
    return must(str_is_set(y) ? arena_fmt(a, "claim/%s/%.*s/%.*s", what, STR_ARG(x), STR_ARG(y))
                              : arena_fmt(a, "claim/%s/%.*s", what, STR_ARG(x)));
}

int key_parse(struct str key, struct key_parts *ret)
{
    struct key_parts k = {0};
    struct str rest = key;
    if (!rest.p || !str_next(&rest, '/', &k.root) || !str_next(&rest, '/', &k.kind) ||
        !str_next(&rest, '/', &k.account) || !rest.p) {
        return -EINVAL;
    }
    k.id = rest; /* names of key pairs may hold a '/' */
    if (!k.root.n || !k.kind.n || !k.account.n || !k.id.n) {
        return -EINVAL;
    }
    *ret = k;
    return 0;
}

struct str id_new(struct arena *a, const char *prefix_word)
{
    char hex[ID_DIGITS + 1];
    rand_hex(hex, ID_DIGITS);
    return must(arena_fmt(a, "%s-%s", prefix_word, hex));
}

bool id_is_wellformed(struct str id, const char *prefix_word)
{
    struct str p = str_c(prefix_word);
    if (!str_has_prefix(id, p) || id.n == p.n || id.p[p.n] != '-') {
        return false;
    }
    struct str hex = str_skip(id, p.n + 1);
    if (hex.n != ID_DIGITS && hex.n != ID_DIGITS_OLD) {
        return false;
    }
    for (size_t i = 0; i < hex.n; i++) {
        if (!((hex.p[i] >= '0' && hex.p[i] <= '9') || (hex.p[i] >= 'a' && hex.p[i] <= 'f'))) {
            return false;
        }
    }
    return true;
}
