/* The authority of the cluster and the certificates of this node's services. */
#include "base/file.h"
#include "base/time.h"
#include "crypto/x509.h"
#include "spx/dirs.h"
#include "spx/host.h"
#include <errno.h>
#include <stdio.h>

#define CA_DAYS     3650u
#define SERVER_DAYS 398u /* what browsers accept at most */
#define MAX_PEM     (64u << 10)

const char *certs_ca_path(struct arena *a, const struct config *c)
{
    const char *slash = strrchr(c->path, '/');
    int n = slash ? (int)(slash - c->path) : 1;
    return arena_cstr(a, arena_fmt(a, "%.*s/" CONFIG_CA_CERT, n, slash ? c->path : "."));
}

static int load_or_make_ca(struct arena *a, const struct config *c, struct x509_pair *ca,
                           bool *ret_changed, struct err *err)
{
    const char *cert = certs_ca_path(a, c);
    const char *key = config_data_path(a, c, DATA_CA_KEY);
    bool has_key = access(key, F_OK) == 0, has_cert = access(cert, F_OK) == 0;
    if (has_key && has_cert) {
        return x509_load(cert, key, ca, err);
    }
    /* Without a configuration an init was cut short, and no client knows the authority yet. */
    if (has_key != has_cert && access(c->path, F_OK) == 0) {
        fail(err, -EINVAL, "BadCertificate", "%s is there, but %s is not", has_key ? key : cert,
             has_key ? cert : key);
        err_hint(
            err,
            "bring it back from a copy, or remove both and give every client the new ca.pem");
        return -EINVAL;
    }
    struct str name = arena_fmt(a, "Spinifex %s %s CA", c->region, c->node);
    int r = x509_make_ca(name, CA_DAYS, ca, err);
    *ret_changed = true;
    return r < 0 ? r : x509_save(ca, cert, key, err);
}

struct server {
    const char *service, *cert, *key; /* files below data_dir */
    enum config_uid uid;
};
static const struct server servers[] = {
    {"awsgw", DATA_SERVER_CERT, DATA_SERVER_KEY, CONFIG_UID_AWSGW},
    {"predastore", DATA_PREDASTORE_CERT, DATA_PREDASTORE_KEY, CONFIG_UID_PREDASTORE},
};

/* Names and addresses of this host, and BUCKET.DOMAIN: S3 is spoken at both doors. */
static int list_names(struct arena *a, const struct config *c, struct str_list *ret,
                      struct err *err)
{
    struct str_list hosts = {0};
    int r = host_names(a, c->host, c->node, &hosts, err);
    if (r < 0) {
        return r;
    }
    size_t n = 0;
    struct str *v = arena_xalloc(a, X509_MAX_NAMES * sizeof(*v));
    for (size_t i = 0; i < hosts.n; i++) {
        v[n++] = hosts.v[i];
    }
    for (size_t i = 0; i < c->predastore.n_domains && n + 2 <= X509_MAX_NAMES; i++) {
        v[n++] = str_c(c->predastore.domains[i]);
        v[n++] = arena_fmt(a, "*.%s", c->predastore.domains[i]);
    }
    *ret = (struct str_list){.v = v, .n = n};
    return 0;
}

/* 0 = the certificate that is there is good; else *err says why not. */
static int check_server(struct arena *a, const struct config *c, const struct server *s,
                        const struct x509_pair *ca, const struct str_list *names,
                        uint64_t at_ns, struct err *err)
{
    AUTO_FREE char *cert = NULL;
    size_t n = 0;
    AUTO_FREE char *key = NULL;
    size_t n_key = 0;
    int r = file_read(config_data_path(a, c, s->cert), MAX_PEM, &cert, &n, err);
    r = r < 0 ? r : file_read(config_data_path(a, c, s->key), MAX_PEM, &key, &n_key, err);
    r = r < 0 ? r
              : x509_check(str_n(cert, n), str_n(key, n_key), str_c(ca->cert_pem), names->v,
                           names->n, at_ns, err);
    if (key) {
        secret_wipe(key, n_key);
    }
    return r;
}

static int issue(struct arena *a, const struct config *c, const struct server *s,
                 const struct x509_pair *ca, const struct str_list *names, struct err *err)
{
    AUTO(x509_pair_done) struct x509_pair server = {0};
    int r = x509_issue(ca, names->v, names->n, SERVER_DAYS, &server, err);
    if (r < 0) {
        return r;
    }
    /* The chain: clients that only have a part of it can still build the way to the authority.
     */
    AUTO_BUF chain;
    buf_init(&chain, MAX_PEM);
    buf_addc(&chain, server.cert_pem);
    buf_addc(&chain, ca->cert_pem);
    free(server.cert_pem);
    server.cert_pem = buf_take(&chain);
    if (!server.cert_pem) {
        return fail(err, -ENOMEM, "BadCertificate", "a certificate is too large");
    }
    r = x509_save(&server, config_data_path(a, c, s->cert), config_data_path(a, c, s->key),
                  err);
    r = r < 0 ? r : dirs_give(c, s->cert, s->uid, err);
    return r < 0 ? r : dirs_give(c, s->key, s->uid, err);
}

int certs_make(const struct config *c, unsigned days_left, bool *ret_changed, char *ret_why,
               size_t why_size, struct err *err)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    AUTO(x509_pair_done) struct x509_pair ca = {0};
    struct str_list names = {0};
    *ret_changed = false;
    int r = load_or_make_ca(a, c, &ca, ret_changed, err);
    r = r < 0 ? r : list_names(a, c, &names, err);
    uint64_t at = time_wall_ns() + days_left * UINT64_C(86400) * NS_PER_S;
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(servers); i++) {
        struct err why = ERR_INIT;
        if (!config_has_service(c, servers[i].service) ||
            (days_left < SERVER_DAYS &&
             check_server(a, c, &servers[i], &ca, &names, at, &why) == 0)) {
            continue;
        }
        snprintf(ret_why, why_size, "%s: %s", servers[i].service,
                 why.msg[0] ? why.msg : "asked for");
        *ret_changed = true;
        r = issue(a, c, &servers[i], &ca, &names, err);
    }
    return r;
}
