#include "base/buf.h"
#include "codec/json.h"
#include "spx/admin.h"
#include "spx/caller.h"
#include "spx/clients.h"
#include "spx/cmds.h"
#include "spx/dirs.h"
#include "spx/host.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <strings.h>

#define MAX_SETUP (16u << 10)

/* An address that this host has lost (another network, another lease) leads nowhere; the
 * certificate names loopback too. */
static const char *reachable_host(const char *host)
{
    struct in_addr ip;
    bool is_lost = inet_pton(AF_INET, host, &ip) == 1 &&
                   !host_has_address_in(ntohl(ip.s_addr), 0xffffffffu);
    return is_lost ? "127.0.0.1" : host;
}

static const char *endpoint(struct spx *s, uint64_t port)
{
    const char *host = reachable_host(s->cfg->host);
    bool is_ip6 = strchr(host, ':') != NULL;
    return arena_cstr(s->arena, arena_fmt(s->arena, "https://%s%s%s:%" PRIu64,
                                          is_ip6 ? "[" : "", host, is_ip6 ? "]" : "", port));
}

const char *admin_endpoint(struct spx *s)
{
    return endpoint(s, s->cfg->awsgw_port);
}

const char *admin_s3_endpoint(struct spx *s)
{
    return endpoint(s, s->cfg->predastore.port);
}

/* What the AWS tools look at before they look at a profile. A value that says the same as the
 * profile does no harm. Values are not shown: some are secrets. */
static void warn_of_environment(const struct profile *p)
{
    const struct {
        const char *name, *fine;
    } beats[] = {
        {"AWS_ACCESS_KEY_ID", NULL},
        {"AWS_SECRET_ACCESS_KEY", NULL},
        {"AWS_SESSION_TOKEN", NULL},
        {"AWS_CA_BUNDLE", p->ca_path},
        {"AWS_ENDPOINT_URL", p->endpoint},
        {"AWS_ENDPOINT_URL_EC2", p->endpoint},
        {"AWS_ENDPOINT_URL_S3", p->endpoint},
        {"AWS_ENDPOINT_URL_STS", p->endpoint},
        {"AWS_REGION", p->region},
        {"AWS_DEFAULT_REGION", p->region},
    };
    char v[4096];
    for (size_t i = 0; i < ARRAY_LEN(beats); i++) {
        if (caller_env(beats[i].name, v, sizeof(v)) &&
            (!beats[i].fine || strcmp(v, beats[i].fine) != 0)) {
            fprintf(stderr, "warning: %s is set and beats the profile: unset %s\n",
                    beats[i].name, beats[i].name);
        }
    }
    if (caller_env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", v, sizeof(v)) &&
        strcasecmp(v, "true") == 0) {
        fprintf(stderr, "warning: AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is set, so that the "
                        "endpoint of the profile is not read: unset it\n");
    }
    if (caller_env("AWS_PROFILE", v, sizeof(v)) && strcmp(v, p->name) != 0) {
        fprintf(stderr, "warning: AWS_PROFILE names another profile: export AWS_PROFILE=%s\n",
                p->name);
    }
}

static bool is_profile_name(const char *name)
{
    return strcmp(name, "default") != 0 && !strpbrk(name, "[]\"'\r\n") && strlen(name) <= 60 &&
           name[0] != '\0';
}

int admin_write_profile(struct spx *s, const char *name, struct str access_key,
                        struct str secret, struct err *err)
{
    struct profile_user user;
    char config[PATH_MAX], credentials[PATH_MAX];
    const struct profile p = {
        .name = name,
        .endpoint = admin_endpoint(s),
        .ca_path = certs_ca_path(s->arena, s->cfg),
        .region = s->cfg->region,
        .access_key = access_key,
        .secret = secret,
    };
    if (!is_profile_name(name)) {
        return fail(err, -EINVAL, "BadProfile", "'%s' is no name for a profile of ours", name);
    }
    int r = profile_find_user(&user, err);
    r = r < 0 ? r : profile_write(&user, &p, config, credentials, sizeof(config), err);
    if (r < 0) {
        return r;
    }
    fprintf(
        stderr,
        "profile   %s for user %s in %s and %s\n"
        "          export AWS_PROFILE=%s\n"
        "          AWS CLIs older than 2.13 read no endpoint from a profile:\n"
        "          aws --profile %s --endpoint-url %s --ca-bundle %s ...  (or: spx aws ...)\n",
        name, user.name, config, credentials, name, name, p.endpoint, p.ca_path);
    warn_of_environment(&p);
    return 0;
}

int cmd_profile_write(struct spx *s, struct err *err)
{
    AUTO(keys_closep) struct keys *keys = NULL;
    struct str account = STR_NONE, key = STR_NONE, secret = STR_NONE;
    const char *name = spx_value(s, "--name");
    int r = spx_config(s, err);
    r = r < 0 || !s->cfg->uid_base ? r : spx_need_root(s, err);
    r = r < 0 ? r
              : keys_open_file(config_data_path(s->arena, s->cfg, DATA_ROOT_KEY), &keys, err);
    r = r < 0 ? r : spx_state(s, err);
    r = r < 0 ? r
              : admin_find_key(s->kv, s->arena, keys, spx_value(s, "--account"), &account, &key,
                               &secret, err);
    return r < 0 ? r : admin_write_profile(s, name ? name : "spinifex", key, secret, err);
}

int cmd_profile_remove(struct spx *s, struct err *err)
{
    struct profile_user u;
    int r = profile_find_user(&u, err);
    return r < 0 ? r : profile_remove(&u, s->n_pos > 0 ? s->pos[0] : "spinifex", err);
}

static void setup_json(const struct client_setup *c, const char *want, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "profile", c->profile);
    jw_cstr(&w, "region", c->region);
    jw_cstr(&w, "endpoint_url", c->endpoint);
    jw_cstr(&w, "s3_endpoint_url", c->s3_endpoint);
    jw_cstr(&w, "ca_bundle", c->ca_path);
    jw_obj(&w, "setup");
    for (size_t i = 0; client_name(i); i++) {
        AUTO_BUF text;
        buf_init(&text, MAX_SETUP);
        if ((!want || strcmp(want, client_name(i)) == 0) &&
            client_text(client_name(i), c, &text)) {
            jw_str(&w, client_name(i), buf_str(&text));
        }
    }
    jw_obj_end(&w);
    jw_obj_end(&w);
    buf_add_char(out, '\n');
}

/* Reads nothing but the configuration, so that everybody may ask. */
int cmd_profile_show(struct spx *s, struct err *err)
{
    const char *name = spx_value(s, "--name"), *want = spx_value(s, "--for");
    AUTO_BUF out;
    buf_init(&out, 8 * MAX_SETUP);
    int r = spx_config(s, err);
    if (r < 0) {
        return r;
    }
    name = name ? name : "spinifex";
    if (!is_profile_name(name)) {
        return spx_usage_error(s, "'%s' is no name for a profile of ours", name);
    }
    const struct client_setup c = {
        .profile = name,
        .region = s->cfg->region,
        .endpoint = admin_endpoint(s),
        .s3_endpoint = admin_s3_endpoint(s),
        .ca_path = certs_ca_path(s->arena, s->cfg),
    };
    if (want && !client_text(want, &c, &out)) {
        return spx_usage_error(s, "--for is aws, boto3, node, rclone or terraform");
    }
    if (s->is_json) {
        buf_clear(&out);
        setup_json(&c, want, &out);
    }
    for (size_t i = 0; !want && !s->is_json && client_name(i); i++) {
        buf_fmt(&out, "%s== %s\n", i ? "\n" : "", client_name(i));
        (void)client_text(client_name(i), &c, &out);
    }
    fputs(buf_cstr(&out), stdout);
    return 0;
}
