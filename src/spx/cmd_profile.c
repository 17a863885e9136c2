#include "spx/admin.h"
#include "spx/cmds.h"
#include "spx/dirs.h"
#include "spx/host.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

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

/* What the AWS tools look at before they look at a profile. */
static void warn_of_environment(void)
{
    static const char *const beats[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                        "AWS_CA_BUNDLE",     "AWS_ENDPOINT_URL",
                                        "AWS_REGION",        "AWS_DEFAULT_REGION"};
    for (size_t i = 0; i < ARRAY_LEN(beats); i++) {
        if (getenv(beats[i])) {
            fprintf(stderr, "warning: %s is set and beats the profile: unset %s\n", beats[i],
                    beats[i]);
        }
    }
}

int admin_write_profile(struct spx *s, const char *name, struct str access_key,
                        struct str secret, struct err *err)
{
    struct profile_user user;
    char config[512], credentials[512];
    const struct profile p = {
        .name = name,
        .endpoint = admin_endpoint(s),
        .ca_path = certs_ca_path(s->arena, s->cfg),
        .region = s->cfg->region,
        .access_key = access_key,
        .secret = secret,
    };
    if (strcmp(name, "default") == 0 || strpbrk(name, "[]\"'\r\n") || strlen(name) > 60 ||
        !name[0]) {
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
    warn_of_environment();
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
