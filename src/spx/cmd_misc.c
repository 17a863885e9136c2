#include "base/time.h"
#include "codec/json.h"
#include "codec/nearest.h"
#include "spx/admin.h"
#include "spx/cmds.h"
#include "spx/dirs.h"
#include "spx/host.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>

int cmd_version(struct spx *s, struct err *err)
{
    puts(s->is_json ? "{\"version\":\"" SPX_VERSION "\"}" : "spx " SPX_VERSION);
    return 0;
}

int cmd_config_check(struct spx *s, struct err *err)
{
    s->config_path = s->n_pos ? s->pos[0] : s->config_path;
    int r = spx_config(s, err);
    if (r == 0) {
        printf(s->is_json ? "{\"file\":\"%s\",\"ok\":true}\n" : "%s is good\n", s->cfg->path);
    }
    return r;
}

/* For scripts: what the services will use, defaults filled in. */
int cmd_config_get(struct spx *s, struct err *err)
{
    int r = spx_config(s, err);
    if (r < 0) {
        return r;
    }
    const struct {
        const char *key, *value;
    } known[] = {
        {"node", s->cfg->node},
        {"region", s->cfg->region},
        {"az", s->cfg->az},
        {"host", s->cfg->host},
        {"data_dir", s->cfg->data_dir},
        {"run_dir", s->cfg->run_dir},
        {"endpoint", admin_endpoint(s)},
        {"s3_endpoint", admin_s3_endpoint(s)},
        {"ca", certs_ca_path(s->arena, s->cfg)},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(s->pos[0], known[i].key) == 0) {
            printf(s->is_json ? "\"%s\"\n" : "%s\n", known[i].value);
            return 0;
        }
    }
    const char *near =
        nearest_word(str_c(s->pos[0]), known, ARRAY_LEN(known), sizeof(known[0]));
    return near ? spx_usage_error(s, "unknown key '%s' (did you mean '%s'?)", s->pos[0], near)
                : spx_usage_error(s, "unknown key '%s'", s->pos[0]);
}

int cmd_config_doc(struct spx *s, struct err *err)
{
    AUTO_BUF out;
    buf_init(&out, 1u << 20);
    config_doc(&out);
    fputs(buf_cstr(&out), stdout);
    return 0;
}

static bool is_word_of(char **argv, const char *option)
{
    size_t n = strlen(option);
    for (; *argv; argv++) {
        if (strncmp(*argv, option, n) == 0 && ((*argv)[n] == 0 || (*argv)[n] == '=')) {
            return true;
        }
    }
    return false;
}

/* The user's own CLI with what a profile of an old version cannot say. */
int cmd_aws(struct spx *s, struct err *err)
{
    int r = spx_config(s, err);
    if (r < 0) {
        return r;
    }
    size_t n = 0, n_rest = 0;
    while (s->rest[n_rest]) {
        n_rest++;
    }
    char **argv = arena_array(s->arena, n_rest + 8, sizeof(*argv));
    if (!argv) {
        return fail(err, -E2BIG, "TooLarge", "too many arguments");
    }
    const char *const pairs[][2] = {{"--endpoint-url", admin_endpoint(s)},
                                    {"--ca-bundle", certs_ca_path(s->arena, s->cfg)},
                                    {"--region", s->cfg->region}};
    argv[n++] = strdup("aws");
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        if (!is_word_of(s->rest, pairs[i][0])) {
            argv[n++] = strdup(pairs[i][0]);
            argv[n++] = strdup(pairs[i][1]);
        }
    }
    if (!is_word_of(s->rest, "--profile") && !getenv("AWS_PROFILE") &&
        !getenv("AWS_ACCESS_KEY_ID")) {
        setenv("AWS_PROFILE", "spinifex", 1);
    }
    memcpy(argv + n, s->rest, (n_rest + 1) * sizeof(*argv));
    fflush(stdout);
    execvp("aws", argv);
    r = fail(err, -errno, "SpawnFailed", "aws: %m");
    err_hint(err, "install it: apt install awscli");
    return r;
}

/* Both doors read their certificates again at SIGHUP. */
static int reload(struct spx *s, const char *service, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    struct err e = ERR_INIT;
    if (!config_has_service(s->cfg, service)) {
        return 0;
    }
    const char *socket = arena_cstr(s->arena, arena_fmt(s->arena, "%s.sock", service));
    int r = spx_call(s, socket, "health", STR("{}"), -1, 5 * NS_PER_S, &j, &e);
    if (r == -ENOTCONN) {
        fprintf(stderr, "%s does not run; it will use the certificate when it starts\n",
                service);
        return 0;
    }
    if (r < 0) {
        return fail(err, r, e.name, "%s", e.msg);
    }
    pid_t pid = (pid_t)json_get_u64(j, "pid", 0);
    if (pid <= 1 || kill(pid, SIGHUP) < 0) {
        return fail(err, -errno, "ReloadFailed", "telling %s (process %d): %m", service,
                    (int)pid);
    }
    return 0;
}

int cmd_cert_renew(struct spx *s, struct err *err)
{
    bool is_changed = false;
    char why[ERR_MSG_MAX] = "";
    uint64_t days = 0;
    int r = spx_number(s, "--days-left", 1, 397, 30, &days);
    r = r ? r : spx_config(s, err);
    r = r || !s->cfg->uid_base ? r : spx_need_root(s, err);
    if (r) {
        return r;
    }
    r = certs_make(s->cfg, spx_is_set(s, "--force") ? 100000u : (unsigned)days, &is_changed,
                   why, sizeof(why), err);
    if (r < 0) {
        return r;
    }
    if (!is_changed) {
        puts(s->is_json ? "{\"renewed\":false}"
                        : "the certificates are good; --force makes new ones");
        return 0;
    }
    r = reload(s, "awsgw", err);
    r = r < 0 ? r : reload(s, "predastore", err);
    if (r == 0) {
        puts(s->is_json ? "{\"renewed\":true}" : "the certificates are new");
    }
    return r;
}
