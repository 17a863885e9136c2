#include "spx/cmd.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include "codec/nearest.h"
#include "net/rpc.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ARENA_MAX (256u << 20) /* lists of a whole cluster */

static const struct spx_opt common_opts[] = {
    {"--config", "FILE", "configuration (default: $SPX_CONFIG, " CONFIG_PATH ")"},
    {"--output", "FORMAT", "table or json"},
    {"--help", NULL, "this text"},
};

static void print_opts(const struct spx_opt *o, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char left[64];
        snprintf(left, sizeof(left), "%s %s", o[i].name, o[i].arg ? o[i].arg : "");
        printf("  %-22s %s\n", left, o[i].help);
    }
}

static void print_help(const struct spx *s)
{
    const struct spx_cmd *c = s->cmd;
    printf("%s\n\nUsage: %s%s%s%s\n", c->help, s->path, c->n_sub ? " COMMAND" : "",
           c->args ? " " : "", c->args ? c->args : "");
    if (c->more) {
        printf("\n%s\n", c->more);
    }
    if (c->n_sub) {
        puts("\nCommands:");
    }
    for (size_t i = 0; i < c->n_sub; i++) {
        printf("  %-12s %s\n", c->sub[i].name, c->sub[i].help);
    }
    if (c->takes_rest) {
        return;
    }
    puts("\nOptions:");
    print_opts(c->opts, c->n_opts);
    print_opts(common_opts, ARRAY_LEN(common_opts));
}

int spx_usage_error(const struct spx *s, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "%s: ", s->path);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry '%s --help'.\n", s->path);
    return SPX_USAGE;
}

static void print_error(const struct spx *s, const struct err *err)
{
    if (s->is_json) {
        AUTO_BUF out;
        buf_init(&out, 8192);
        struct jw w;
        jw_init(&w, &out);
        jw_obj(&w, NULL);
        jw_obj(&w, "error");
        jw_cstr(&w, "code", err->name ? err->name : "Failed");
        jw_cstr(&w, "message", err->msg);
        if (err->hint) {
            jw_cstr(&w, "hint", err->hint);
        }
        jw_obj_end(&w);
        jw_obj_end(&w);
        fprintf(stderr, "%s\n", buf_cstr(&out));
        return;
    }
    fprintf(stderr, "%s: %s\n", s->path, err->msg[0] ? err->msg : strerror(-err->code));
    if (err->hint) {
        fprintf(stderr, "  %s\n", err->hint);
    }
}

const char *spx_value_if(const struct spx *s, const char *name)
{
    for (size_t i = 0; i < s->cmd->n_opts; i++) {
        if (strcmp(s->cmd->opts[i].name, name) == 0) {
            return s->values[i];
        }
    }
    return NULL;
}

const char *spx_value(const struct spx *s, const char *name)
{
    for (size_t i = 0; i < s->cmd->n_opts; i++) {
        if (strcmp(s->cmd->opts[i].name, name) == 0) {
            return s->values[i];
        }
    }
    abort(); /* a command asks for an option that its table does not have */
}

bool spx_is_set(const struct spx *s, const char *name)
{
    return spx_value(s, name) != NULL;
}

int spx_number(const struct spx *s, const char *name, uint64_t min, uint64_t max, uint64_t dflt,
               uint64_t *ret)
{
    const char *v = spx_value(s, name);
    *ret = dflt;
    if (!v) {
        return 0;
    }
    if (num_u64(str_c(v), max, ret) < 0 || *ret < min) {
        return spx_usage_error(s, "%s is '%s', but must be a number from %llu to %llu", name, v,
                               (unsigned long long)min, (unsigned long long)max);
    }
    return 0;
}

/* One "--name", "--name VALUE" or "--name=VALUE" at argv[*i]. */
static int parse_option(struct spx *s, char **argv, int *i, bool *ret_help)
{
    struct str whole = str_c(argv[*i]);
    struct str name = str_cut(whole, '=');
    const char *inline_value = name.n < whole.n ? argv[*i] + name.n + 1 : NULL;
    const struct spx_opt *found = NULL;
    const char **slot = NULL;
    static const char *format;
    for (size_t k = 0; k < s->cmd->n_opts; k++) {
        if (str_eqc(name, s->cmd->opts[k].name)) {
            found = &s->cmd->opts[k];
            slot = &s->values[k];
        }
    }
    if (str_eqc(name, "--help") || str_eqc(name, "-h")) {
        *ret_help = true;
        return 0;
    }
    if (str_eqc(name, "--config")) {
        found = &common_opts[0];
        slot = &s->config_path;
    } else if (str_eqc(name, "--output")) {
        found = &common_opts[1];
        slot = &format;
    }
    if (!found) {
        const char *near =
            nearest_word(name, s->cmd->opts, s->cmd->n_opts, sizeof(s->cmd->opts[0]));
        near = near ? near
                    : nearest_word(name, common_opts, ARRAY_LEN(common_opts),
                                   sizeof(common_opts[0]));
        return near ? spx_usage_error(s, "unknown option %.*s (did you mean %s?)",
                                      STR_ARG(name), near)
                    : spx_usage_error(s, "unknown option %.*s", STR_ARG(name));
    }
    if (!found->arg) {
        *slot = "";
        return inline_value ? spx_usage_error(s, "%s takes no value", found->name) : 0;
    }
    if (!inline_value && !argv[*i + 1]) {
        return spx_usage_error(s, "%s needs a value: %s %s", found->name, found->name,
                               found->arg);
    }
    *slot = inline_value ? inline_value : argv[++*i];
    if (slot == &format) {
        s->is_json = strcmp(format, "json") == 0;
        if (!s->is_json && strcmp(format, "table") != 0) {
            return spx_usage_error(s, "--output is '%s', but must be table or json", format);
        }
    }
    return 0;
}

static const struct spx_cmd *find_sub(const struct spx_cmd *c, const char *name)
{
    for (size_t i = 0; i < c->n_sub; i++) {
        if (strcmp(c->sub[i].name, name) == 0) {
            return &c->sub[i];
        }
    }
    return NULL;
}

static int unknown_sub(const struct spx *s, const char *word)
{
    const char *near =
        nearest_word(str_c(word), s->cmd->sub, s->cmd->n_sub, sizeof(s->cmd->sub[0]));
    return near ? spx_usage_error(s, "unknown command '%s' (did you mean '%s'?)", word, near)
                : spx_usage_error(s, "unknown command '%s'", word);
}

/* 0 = run it; SPX_USAGE; -1 = help was asked for. */
static int parse(struct spx *s, int argc, char **argv)
{
    bool is_help = false, is_ended = false;
    for (int i = 1; i < argc; i++) {
        const char *w = argv[i];
        if (!is_ended && strcmp(w, "--") == 0) {
            is_ended = true;
        } else if (!is_ended && w[0] == '-' && w[1]) {
            int r = parse_option(s, argv, &i, &is_help);
            if (r != 0) {
                return r;
            }
        } else if (s->cmd->n_sub) {
            const struct spx_cmd *sub = find_sub(s->cmd, w);
            if (!sub && strcmp(w, "help") == 0) {
                is_help = true;
                continue;
            }
            if (!sub) {
                return unknown_sub(s, w);
            }
            s->cmd = sub;
            s->path = arena_cstr(s->arena, arena_fmt(s->arena, "%s %s", s->path, sub->name));
            memset(s->values, 0, sizeof(s->values));
            if (sub->takes_rest) {
                s->rest = &argv[i + 1];
                return 0;
            }
        } else if (s->n_pos == MIN(SPX_MAX_POS, s->cmd->max_pos)) {
            return spx_usage_error(s, "'%s' is one argument too many", w);
        } else {
            s->pos[s->n_pos++] = w;
        }
    }
    if (is_help) {
        return -1;
    }
    if (!s->cmd->fn) {
        return spx_usage_error(s, "which command?");
    }
    if (s->n_pos < s->cmd->min_pos) {
        return spx_usage_error(s, "missing argument: %s", s->cmd->args);
    }
    return 0;
}

int spx_main(const struct spx_cmd *root, int argc, char **argv)
{
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_MAX);
    struct spx s = {.arena = a, .cmd = root, .path = root->name};
    struct err err = ERR_INIT;
    int r = parse(&s, argc, argv);
    if (r < 0) {
        print_help(&s);
        return SPX_EXIT_OK;
    }
    r = r ? r : s.cmd->fn(&s, &err);
    if (r < 0) {
        if (!err.code) {
            err.code = r;
        }
        print_error(&s, &err);
    }
    kv_close(s.kv);
    config_free(s.cfg);
    if (fflush(stdout) != 0 && r == 0) {
        fprintf(stderr, "%s: writing the output failed\n", s.path);
        r = -EIO;
    }
    return r == 0 ? SPX_EXIT_OK : r == SPX_USAGE ? SPX_EXIT_USAGE : SPX_EXIT_FAILED;
}

int spx_config(struct spx *s, struct err *err)
{
    if (s->cfg) {
        return 0;
    }
    int r = config_load(s->config_path, &s->cfg, err);
    if (r == -ENOENT) {
        err_hint(err, "make one: sudo spx admin init --node node1 --nodes 1");
    } else if (r == -EACCES) {
        err_hint(err, "run it with sudo");
    }
    return r;
}

/* The clients of rpc.h wait for a service that is not there; a person wants to hear of it at
 * once. */
int spx_check_socket(const char *path, struct err *err)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || strlen(path) >= sizeof(to.sun_path)) {
        return fail(err, -EINVAL, "Unavailable", "%s is no name of a socket", path);
    }
    memcpy(to.sun_path, path, strlen(path) + 1);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0) {
        return 0;
    }
    if (errno == EACCES || errno == EPERM) {
        fail(err, -EACCES, "AccessDenied", "%s: %m", path);
        err_hint(err, "run it with sudo");
        return -EACCES;
    }
    fail(err, -ENOTCONN, "Unavailable", "nobody answers at %s: %m", path);
    err_hint(err, "is it running? sudo spx up, or systemctl start spinifex.target");
    return -ENOTCONN;
}

int spx_state(struct spx *s, struct err *err)
{
    if (s->kv) {
        return 0;
    }
    int r = spx_config(s, err);
    if (r < 0) {
        return r;
    }
    const char *path = config_run_path(s->arena, s->cfg, "state.sock");
    r = spx_check_socket(path, err);
    return r < 0 ? r : kv_open_remote_as(path, "admin", &s->kv, err);
}

int spx_need_root(const struct spx *s, struct err *err)
{
    if (geteuid() == 0) {
        return 0;
    }
    return fail(err, -EPERM, "AccessDenied", "only root may do this: sudo %s", s->path);
}

int spx_call(struct spx *s, const char *socket_name, const char *method, struct str payload,
             int fd, uint64_t timeout_ns, struct json **ret, struct err *err)
{
    int r = spx_config(s, err);
    if (r < 0) {
        return r;
    }
    const char *path = config_run_path(s->arena, s->cfg, socket_name);
    r = spx_check_socket(path, err);
    if (r < 0) {
        return r;
    }
    struct rpc_client *c = rpc_client_new(path, NULL, NULL);
    struct rpc_reply reply = {0};
    r = rpc_call(c, str_c(method), payload, &fd, fd >= 0 ? 1 : 0, timeout_ns, &reply, err);
    if (r == 0) {
        r = json_parse(str_n(reply.payload, reply.n), ret, err);
        rpc_reply_done(&reply);
    } else if (r == -ENOTCONN) {
        err_hint(err, "is it running? sudo spx up, or systemctl start spinifex.target");
    } else if (r == -EACCES || r == -EPERM) {
        err_hint(err, "run it with sudo");
    }
    rpc_client_free(c);
    return r;
}
