/* config.h — /etc/spinifex/spinifex.toml, checked against one table, and the folders of a node.
 * Not here: secrets (keys/), cluster state (kv/).
 * Threads:  read once at start, then constant.
 * Memory:   config_load() gives; strings belong to the config.
 * Errors:   "BadConfig": file, line, key and the nearest valid key; "OpenFailed". */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

/* Where things lie below data_dir (config_data_path()); 'spx admin init' makes them. */
#define DATA_STATE_DB            "state/state.db"   /* spx-state's */
#define DATA_ROOT_KEY            "keys/root.key"    /* keys/keys.h; awsgw's, 0600 */
#define DATA_CA_KEY              "keys/ca.key"      /* root's, 0600 */
#define DATA_SERVER_CERT         "awsgw/server.pem" /* with that of the CA; awsgw's */
#define DATA_SERVER_KEY          "awsgw/server.key" /* awsgw's, 0600 */
#define CONFIG_CA_CERT           "ca.pem" /* beside the configuration: for everybody */
/* predastore's own, 0600: it runs as another user than awsgw. */
#define DATA_PREDASTORE_ROOT_KEY "predastore/root.key" /* a copy of DATA_ROOT_KEY */
#define DATA_PREDASTORE_CERT     "predastore/server.pem"
#define DATA_PREDASTORE_KEY      "predastore/server.key"
#define DATA_PREDASTORE_DRIVE    "predastore/drive1" /* when the configuration names no drives */
/* Below run_dir: S3 in HTTP/1.1 without TLS, for awsgw's relay. */
#define RUN_S3_SOCKET            "predastore-s3.sock"
#define DATA_VIPERBLOCK_ROOT_KEY "viperblock/root.key" /* a copy, 0600: for encrypted volumes */

/* Offsets from uid_base: a service's user and group id. */
enum config_uid {
    CONFIG_UID_STATE = 1,
    CONFIG_UID_AWSGW = 2,
    CONFIG_UID_VIPERBLOCK = 3,
    CONFIG_UID_VPCD = 4, /* of its responders */
    CONFIG_UID_PREDASTORE = 5,
    CONFIG_UID_GUESTS = 100, /* + slot */
};

struct config_pool {           /* [[network.external_pools]] */
    const char *name, *source; /* "static"; "retired" gives nothing out */
    const char *range_start, *range_end, *gateway;
    uint64_t prefix_len;
    const char **dns_servers;
    size_t n_dns_servers;
};

struct config_predastore { /* [nodes.NAME.predastore] */
    uint64_t port;         /* 8443 */
    const char **drives;   /* absolute, at least one, none within another */
    size_t n_drives;
    uint64_t rs_data, rs_parity; /* chosen from n_drives when the file says nothing */
    bool is_encrypted;           /* new objects are sealed */
    const char **domains; /* BUCKET.<one of these> is a bucket of that name; at least one */
    size_t n_domains;
    uint64_t inline_max; /* bodies up to so many bytes lie in the log */
    uint64_t near_full_pct, full_pct;
    uint64_t max_conns_per_ip; /* of the TCP port */
};
#define CONFIG_MAX_DRIVES    24u
#define CONFIG_MAX_RS_DATA   16u
#define CONFIG_MAX_RS_PARITY 8u
/* The code for so many drives: all of them used, one may be lost from two on, two from six on. */
void config_default_rs(size_t n_drives, uint64_t *ret_data, uint64_t *ret_parity);

#define CONFIG_VERSION 4u
#define CONFIG_PATH    "/etc/spinifex/spinifex.toml"
#define CONFIG_UID_BASE \
    70000u /* what init writes: above Debian's system users, below subuids */

struct config {
    const char *path; /* the file that was read */
    uint64_t version;
    const char *node;            /* name of this node: "node1" */
    const char *region, *az;     /* "ap-southeast-2", "ap-southeast-2a" */
    const char *internal_suffix; /* "compute.internal" part of private DNS names */
    /* network */
    const char *external_mode; /* "pool" */
    uint64_t guest_mtu;        /* 9001 */
    const char *uplink;        /* LAN interface of the pool; "" = host only */
    struct config_pool *pools;
    size_t n_pools;
    /* this node */
    const char *host;      /* address or name under which it is reached */
    const char *data_dir;  /* /var/lib/spinifex */
    const char *run_dir;   /* /run/spinifex */
    uint64_t awsgw_port;   /* 9999 */
    uint64_t metrics_port; /* on 127.0.0.1; 0 = none */
    const char **services; /* "state", "awsgw", "viperblock", "vpcd", "compute", "predastore" */
    size_t n_services;
    uint64_t vcpu_overcommit_burstable; /* t-types: vCPUs given out per CPU, default 4 */
    struct config_predastore predastore;
    /* [nodes.NAME.viperblock]: what a guest sees of a full disk: false = its writes wait until
     * there is room, true = they fail (ENOSPC). */
    bool is_full_reported;
    uint64_t uid_base; /* 0 = do not change users (tests); see docs/architecture.md */
};

/* path NULL: $SPX_CONFIG, else /etc/spinifex/spinifex.toml. */
MUST_CHECK int config_load(const char *path, struct config **ret, struct err *err);
void config_free(struct config *c);
DEFINE_CLEANUP(struct config *, config_free);

/* The same from text; 'file' is for messages. */
MUST_CHECK int config_parse(const char *file, struct str text, struct config **ret,
                            struct err *err);
/* Appends a table of all keys (Markdown). */
void config_doc(struct buf *out);
/* True when this node is configured to run the service. */
bool config_has_service(const struct config *c, const char *service);

/* run_dir + "/" + name, e.g. "state.sock"; data_dir + "/" + name. In the arena. */
const char *config_run_path(struct arena *a, const struct config *c, const char *name);
const char *config_data_path(struct arena *a, const struct config *c, const char *name);
