#include "state/rights.h"

#include "base/macro.h"

#define AS_ROOT 0 /* in place of an offset from uid_base */

static const struct {
    const char *name;
    uid_t uid_offset; /* docs/architecture.md, "Users" */
} services[] = {
    {"admin", AS_ROOT}, {"awsgw", 2},      {"compute", AS_ROOT},
    {"viperblock", 3},  {"vpcd", AS_ROOT}, {"predastore", 5},
};

#define ALL (RIGHT_PUT | RIGHT_DELETE)

/* A pattern that ends in '/' (or is empty) names all keys that begin with it, else one key; '*'
 * is one part between slashes. */
static const struct {
    const char *service, *pattern;
    unsigned rights;
} table[] = {
    {"admin", "", ALL},

    {"awsgw", "spec/", ALL},
    {"awsgw", "claim/", ALL},
    {"awsgw", "iam/", ALL},
    {"awsgw", "config/", ALL},
    {"awsgw", "status/", RIGHT_DELETE}, /* of what it has deleted */
    {"awsgw", "node/*/awsgw", ALL},

    {"compute", "status/instance/", ALL},
    {"compute", "status/attachment/", ALL},
    {"compute", "node/*/facts", ALL},
    {"compute", "node/*/compute", ALL},

    {"viperblock", "status/volume/", ALL},
    {"viperblock", "status/image/", ALL},
    {"viperblock", "status/snapshot/", ALL},
    {"viperblock", "status/volmod/", ALL},
    {"viperblock", "spec/image/", ALL}, /* at import */
    {"viperblock", "spec/snapshot/", ALL},
    {"viperblock", "spec/tags/", ALL},
    {"viperblock", "claim/imagename/", ALL},
    {"viperblock", "spec/volume/", RIGHT_DELETE}, /* when the bytes are gone */
    {"viperblock", "node/*/viperblock", ALL},

    {"vpcd", "status/eni/", ALL},
    {"vpcd", "status/vpc/", ALL},
    {"vpcd", "node/*/vpcd", ALL},

    {"predastore", "node/*/predastore", ALL},
};

/* All keys may be read by all services, but these. */
static const struct {
    const char *prefix;
    const char *readers[4];
} secrets[] = {
    {"iam/key/", {"admin", "awsgw", "predastore"}},
    {"secret/", {"admin", "awsgw", "predastore"}},
};

int rights_service(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        if (str_eqc(name, services[i].name)) {
            return (int)i;
        }
    }
    return -1;
}

const char *rights_name(int service)
{
    return services[service].name;
}

size_t rights_n_services(void)
{
    return ARRAY_LEN(services);
}

bool rights_may_be(int service, uid_t uid, uid_t uid_base)
{
    if (uid_base == 0) {
        return true;
    }
    uid_t offset = services[service].uid_offset;
    return uid == (offset == AS_ROOT ? 0 : uid_base + offset);
}

static bool matches(struct str pattern, struct str key)
{
    if (pattern.n == 0) {
        return true;
    }
    size_t i = 0;
    for (size_t p = 0; p < pattern.n; p++) {
        if (pattern.p[p] == '*') {
            size_t from = i;
            while (i < key.n && key.p[i] != '/') {
                i++;
            }
            if (i == from) {
                return false;
            }
        } else if (i == key.n || key.p[i++] != pattern.p[p]) {
            return false;
        }
    }
    /* "spec/" itself is no key of that prefix */
    return pattern.p[pattern.n - 1] == '/' ? i < key.n : i == key.n;
}

bool rights_may_write(int service, enum right right, struct str key)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (str_eqc(str_c(services[service].name), table[i].service) &&
            (table[i].rights & right) && matches(str_c(table[i].pattern), key)) {
            return true;
        }
    }
    return false;
}

static bool is_reader(const char *const readers[4], const char *service)
{
    for (size_t i = 0; i < 4 && readers[i]; i++) {
        if (str_eqc(str_c(service), readers[i])) {
            return true;
        }
    }
    return false;
}

bool rights_may_read(int service, struct str key, bool is_prefix)
{
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
        struct str secret = str_c(secrets[i].prefix);
        bool is_hit = str_has_prefix(key, secret) || (is_prefix && str_has_prefix(secret, key));
        if (is_hit && !is_reader(secrets[i].readers, services[service].name)) {
            return false;
        }
    }
    return true;
}

bool rights_is_admin(int service)
{
    return service == 0;
}
