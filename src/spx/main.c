#include "base/macro.h"
#include "spx/cmds.h"
#include <signal.h>

/* clang-format off */
#define SUBS(a) .sub = (a), .n_sub = ARRAY_LEN(a)
#define OPTS(a) .opts = (a), .n_opts = ARRAY_LEN(a)

static const struct spx_opt account_filter[] = {
    {"--account", "ID", "only what belongs to this account"},
};
static const struct spx_opt vms_opts[] = {
    {"--account", "ID", "only what belongs to this account"},
    {"--all", NULL, "terminated ones too"},
};
static const struct spx_cmd get_cmds[] = {
    {.name = "nodes", .help = "Hosts and the services that run there.", .fn = cmd_get_nodes},
    {.name = "vms", .help = "Instances of all accounts.", .fn = cmd_get_vms, OPTS(vms_opts)},
    {.name = "volumes", .help = "Volumes of all accounts.", .fn = cmd_get_volumes, OPTS(account_filter)},
    {.name = "images", .help = "Machine images.", .fn = cmd_get_images},
    {.name = "buckets", .help = "Buckets of all accounts, with what lies in them.", .fn = cmd_get_buckets, OPTS(account_filter)},
    {.name = "accounts", .help = "Accounts.", .fn = cmd_get_accounts},
};
static const struct spx_opt interval_opts[] = {
    {"--interval", "SECONDS", "over which rates are taken (default: 1)"},
};
static const struct spx_cmd top_cmds[] = {
    {.name = "storage", .help = "What the object store does, and the space of its drives.", .fn = cmd_top_storage, OPTS(interval_opts)},
    {.name = "volumes", .help = "What each open volume does, how fast, and how far fetching and snapshots are.", .fn = cmd_top_volumes,
     OPTS(interval_opts)},
    {.name = "nodes", .help = "What is used, what is free, and how many of each type still fit.", .fn = cmd_top_nodes},
};

static const struct spx_opt init_opts[] = {
    {"--node", "NAME", "name of this node (default: node1)"},
    {"--nodes", "N", "number of nodes (1)"},
    {"--host", "ADDRESS", "address under which this node is reached (default: that of its default route)"},
    {"--region", "NAME", "name of the region (default: ap-southeast-2)"},
    {"--az", "NAME", "availability zone (default: the region and \"a\")"},
    {"--account", "NAME", "name of the first account (default: main)"},
    {"--port", "N", "port of the AWS API (default: 9999)"},
    {"--s3-port", "N", "port of S3 (default: 8443)"},
    {"--metrics-port", "N", "port of counters for Prometheus, on 127.0.0.1 (default: 9998; 0: none)"},
    {"--drives", "DIR,...", "folders of the object store, best each a disk of its own (default: one in the data folder)"},
    {"--config-dir", "DIR", "default: /etc/spinifex"},
    {"--data-dir", "DIR", "default: /var/lib/spinifex"},
    {"--run-dir", "DIR", "default: /run/spinifex"},
    {"--uid-base", "N", "first of the user ids of services and guests (default: 70000; 0: nobody changes users)"},
    {"--force", NULL, "write the configuration again; keys, accounts and data stay"},
    {"--no-profile", NULL, "write no AWS profile"},
};
static const struct spx_opt profile_of_account[] = {
    {"--profile", "NAME", "write the key into this profile of the calling user"},
};
static const struct spx_cmd account_cmds[] = {
    {.name = "create", .args = "NAME", .help = "Makes an account with a user 'admin' and an access key.",
     .more = "The secret is shown this once.", .min_pos = 1, .max_pos = 1, .fn = cmd_account_create, OPTS(profile_of_account)},
    {.name = "list", .help = "Accounts.", .fn = cmd_get_accounts},
    {.name = "key", .args = "ACCOUNT", .help = "Makes one more access key for the account's user 'admin'.",
     .more = "The secret is shown this once.", .min_pos = 1, .max_pos = 1, .fn = cmd_account_key, OPTS(profile_of_account)},
    {.name = "delete", .args = "ACCOUNT", .help = "Takes an empty account away.",
     .more = "Refused while it has instances, volumes, images, key pairs or buckets: the message says what is left.",
     .min_pos = 1, .max_pos = 1, .fn = cmd_account_delete},
};
static const struct spx_opt lan_opts[] = {
    {"--uplink", "LINK", "interface of the LAN, such as eth0"},
    {"--range", "FIRST-LAST", "public addresses for guests: nothing on the LAN has them, and no DHCP server gives them out"},
    {"--gateway", "ADDRESS", "the LAN's router (default: that of the uplink's default route)"},
};
static const struct spx_cmd network_cmds[] = {
    {.name = "lan", .help = "Puts the public addresses of guests on the LAN.",
     .more = "The range is probed by ARP; who has one of its addresses is named and nothing is changed. Then the configuration is\n"
             "written, and vpcd and awsgw are started again. Guests run on, and keep the public address that they have.",
     .fn = cmd_network_lan, OPTS(lan_opts)},
};
static const struct spx_opt restore_opts[] = {
    {"--force", NULL, "replace what is there"},
};
static const struct spx_cmd state_cmds[] = {
    {.name = "get", .args = "KEY", .help = "One value of the store.", .min_pos = 1, .max_pos = 1, .fn = cmd_state_get},
    {.name = "list", .args = "[PREFIX]", .help = "Keys of the store.", .max_pos = 1, .fn = cmd_state_list},
    {.name = "stats", .help = "Size, history and commits of the store.", .fn = cmd_state_stats},
    {.name = "dump", .args = "FILE", .help = "Copies the store into a file.", .min_pos = 1, .max_pos = 1, .fn = cmd_state_dump},
    {.name = "restore", .args = "FILE", .help = "Replaces the store by a dump; the services see it at once.", .min_pos = 1,
     .max_pos = 1, .fn = cmd_state_restore, OPTS(restore_opts)},
};
static const struct spx_opt import_opts[] = {
    {"--name", "NAME", "name of the image (default: from the file's name)"},
    {"--description", "TEXT", "what it is"},
    {"--account", "ID", "owner (default: the oldest account)"},
    {"--sha256", "HEX", "refuse the file when its checksum differs"},
    {"--format", "FORMAT", "raw, qcow2, vmdk, vhdx, ova (default: looked at)"},
    {"--arch", "ARCH", "x86_64 or arm64"},
    {"--boot-mode", "MODE", "bios or uefi"},
    {"--platform", "NAME", "windows"},
    {"--root-device", "NAME", "default: /dev/sda1"},
    {"--private", NULL, "for its owner only"},
};
static const struct spx_opt build_opts[] = {
    {"--out", "FILE", "default: /var/cache/spinifex/mini/mini.raw"},
    {"--debs", "DIR", "take the packages from here: for a machine without internet"},
    {"--no-import", NULL, "only make the file"},
    {"--account", "ID", "owner (default: the oldest account)"},
    {"--private", NULL, "for its owner only"},
};
static const struct spx_cmd images_cmds[] = {
    {.name = "build", .args = "mini", .help = "Builds the small image from Debian packages and imports it.", .min_pos = 1,
     .max_pos = 1, .fn = cmd_images_build, OPTS(build_opts)},
    {.name = "import", .args = "FILE|URL", .help = "Imports raw, qcow2, vmdk, vhdx or ova (also .gz, .xz, .zst, .tar).",
     .min_pos = 1, .max_pos = 1, .fn = cmd_images_import, OPTS(import_opts)},
    {.name = "list", .help = "Machine images.", .fn = cmd_get_images},
    {.name = "remove", .args = "IMAGE", .help = "Removes an image; volumes made from it stay.", .min_pos = 1, .max_pos = 1,
     .fn = cmd_images_remove},
};
static const struct spx_opt scrub_opts[] = {
    {"--no-repair", NULL, "only look"},
    {"--no-wait", NULL, "come back at once; 'scrub status' tells how far it is"},
};
static const struct spx_opt loss_opts[] = {
    {"--drive", "N", "gives up drive N of a set whose drives went on without each other; predastore does not run then"},
    {"--yes", NULL, "do not ask"},
};
static const struct spx_cmd storage_cmds[] = {
    {.name = "check", .help = "Says what is wrong with the object store, and what to do.",
     .more = "Exit status 1 when something is.", .fn = cmd_storage_check},
    {.name = "scrub", .args = "[start|status]", .help = "Reads every block of every copy, repairs what is bad.", .max_pos = 1,
     .fn = cmd_storage_scrub, OPTS(scrub_opts)},
    {.name = "rebuild-index", .help = "Makes the index again out of the log, at the next start.", .fn = cmd_storage_rebuild_index},
    {.name = "drives", .args = "[replace N]", .help = "The drives; or takes the empty folder in the place of drive N as a new one.",
     .more = "The new drive is filled in the background.", .max_pos = 2, .fn = cmd_storage_drives},
    {.name = "accept-loss", .help = "Shows what of the store is lost for good; whoever types yes makes it go on without.",
     .more = "Who it was is written down on the drives (losses.log) and in the log of predastore.", .fn = cmd_storage_accept_loss,
     OPTS(loss_opts)},
    {.name = "compact", .help = "Gives back the space of what was deleted, now instead of soon.", .fn = cmd_storage_compact},
};
static const struct spx_opt deep_opts[] = {
    {"--deep", NULL, "read every block, of snapshots too"},
};
static const struct spx_opt export_opts[] = {
    {"--format", "FORMAT", "raw (default) or qcow2"},
    {"--force", NULL, "replace the file"},
};
static const struct spx_cmd volumes_cmds[] = {
    {.name = "check", .args = "[VOLUME]", .help = "Says what is wrong with volumes and snapshots.",
     .more = "A volume that stopped because its disk failed a sync is read through and goes on when it is fine. Exit status 1 when something is wrong.",
     .max_pos = 1, .fn = cmd_volumes_check, OPTS(deep_opts)},
    {.name = "export", .args = "VOLUME FILE", .help = "Copies a volume into a file; of one that is in use, as it is at each moment.",
     .min_pos = 2, .max_pos = 2, .fn = cmd_volumes_export, OPTS(export_opts)},
    {.name = "import", .args = "VOLUME FILE", .help = "Fills a detached volume from a raw file.", .min_pos = 2, .max_pos = 2,
     .fn = cmd_volumes_import},
    {.name = "orphans", .help = "What lies in the block service and no record knows; nothing is removed.", .fn = cmd_volumes_orphans},
};
static const struct spx_opt renew_opts[] = {
    {"--days-left", "N", "renew when it ends within N days (default: 30)"},
    {"--force", NULL, "renew in any case"},
};
static const struct spx_cmd cert_cmds[] = {
    {.name = "renew", .help = "Makes new server certificates when they are needed; the services take them without a restart.",
     .fn = cmd_cert_renew, OPTS(renew_opts)},
};
static const struct spx_cmd admin_cmds[] = {
    {.name = "init", .help = "Makes this host a node: configuration, folders, certificates, first account, AWS profile.",
     .fn = cmd_admin_init, OPTS(init_opts)},
    {.name = "prepare", .help = "Makes folders, certificates and copies of keys that an older version did not make.",
     .fn = cmd_admin_prepare},
    {.name = "account", .help = "Accounts and their keys.", SUBS(account_cmds)},
    {.name = "images", .help = "Machine images.", SUBS(images_cmds)},
    {.name = "cert", .help = "The server certificate.", SUBS(cert_cmds)},
    {.name = "storage", .help = "The object store.", SUBS(storage_cmds)},
    {.name = "volumes", .help = "Volumes and snapshots.", SUBS(volumes_cmds)},
    {.name = "network", .help = "How guests are reached.", SUBS(network_cmds)},
    {.name = "state", .help = "The store, for the person who must look.", SUBS(state_cmds)},
};

static const struct spx_opt bench_opts[] = {
    {"--endpoint", "URL", "default: S3 of this node, else that of the profile"},
    {"--runs", "N", "how often (default: 3)"},
    {"--tag", "TEXT", "a name for the result"},
};
static const struct spx_opt bench_block_opts[] = {
    {"--tag", "TEXT", "a name for the result, which is kept in spx-bench-TEXT.json"},
    {"--size", "MIB", "of the file (default: 4096)"},
    {"--runs", "N", "how often (default: 3)"},
    {"--seconds", "N", "of each pattern in each run (default: 10)"},
    {"--pattern", "NAME", "only this one"},
    {"--volume", NULL, "measure the same file as a volume, too: through vhost-user and the block engine, without a guest"},
    {"--require-mount", NULL, "refuse a folder on the disk of the system"},
};
static const struct spx_cmd bench_cmds[] = {
    {.name = "block", .args = "[DIR]", .help = "Measures the disk under a folder: on a host, or in a guest on its volume.",
     .more = "A file is written first and is gone afterwards (default folder: $BENCHDIR, else the current one). The same as one static\n"
             "file, for guests: spx-bench, beside the services.",
     .max_pos = 1, .fn = cmd_bench_block, OPTS(bench_block_opts)},
    {.name = "compare", .args = "A B", .help = "Two results side by side; says 'not resolved' where their ranges overlap.", .min_pos = 2,
     .max_pos = 2, .fn = cmd_bench_compare},
    {.name = "s3", .args = "MIB", .help = "Writes, reads and verifies an object of so many MiB.",
     .more = "Uses the profile $AWS_PROFILE (default: spinifex) or AWS_ACCESS_KEY_ID. Makes a bucket and takes it away again.",
     .min_pos = 1, .max_pos = 1, .fn = cmd_bench_s3, OPTS(bench_opts)},
};
static const struct spx_cmd config_cmds[] = {
    {.name = "check", .args = "[FILE]", .help = "Says what is wrong with the configuration.", .max_pos = 1, .fn = cmd_config_check},
    {.name = "get", .args = "KEY", .help = "One value for scripts: node, region, az, host, data_dir, run_dir, endpoint, s3_endpoint, ca.",
     .min_pos = 1, .max_pos = 1, .fn = cmd_config_get},
    {.name = "doc", .help = "All keys of the configuration.", .fn = cmd_config_doc},
};
static const struct spx_opt profile_opts[] = {
    {"--name", "NAME", "name of the profile (default: spinifex)"},
    {"--account", "ID", "account whose key it gets (default: the oldest)"},
};
static const struct spx_opt profile_show_opts[] = {
    {"--name", "NAME", "name of the profile (default: spinifex)"},
    {"--for", "CLIENT", "only for aws, boto3, node, rclone or terraform"},
};
static const struct spx_cmd profile_cmds[] = {
    {.name = "show", .help = "How other programs reach this cloud: AWS CLI, boto3, Node, rclone, Terraform.", .fn = cmd_profile_show,
     .more = "The texts name the profile and hold no secret.", OPTS(profile_show_opts)},
    {.name = "write", .help = "Writes the AWS profile of the calling user (of $SUDO_USER under sudo).", .fn = cmd_profile_write,
     OPTS(profile_opts)},
    {.name = "remove", .args = "[NAME]", .help = "Takes the profile (spinifex) out of those files again.", .max_pos = 1, .fn = cmd_profile_remove},
};
static const struct spx_opt up_opts[] = {
    {"--detach", NULL, "come back when every service answers"},
    {"--log-dir", "DIR", "default: log in the data folder"},
    {"--log-level", "LEVEL", "error, warn, info or debug"},
};
static const struct spx_opt down_opts[] = {
    {"--keep-guests", NULL, "guests run on"},
    {"--force", NULL, "go on when guests cannot be stopped"},
    {"--timeout", "SECONDS", "how long services may take (default: 240)"},
};

static const struct spx_opt doctor_opts[] = {
    {"--quick", NULL, "only what is not well, and nothing that asks the services"},
};
static const struct spx_cmd root_cmds[] = {
    {.name = "up", .help = "Starts the services of this node and watches over them.", .fn = cmd_up, OPTS(up_opts)},
    {.name = "down", .help = "Stops guests, then services; keeps all data.", .fn = cmd_down, OPTS(down_opts)},
    {.name = "get", .help = "Lists what there is.", SUBS(get_cmds)},
    {.name = "top", .help = "What is used.", SUBS(top_cmds)},
    {.name = "admin", .help = "Setting up and looking after a node.", SUBS(admin_cmds)},
    {.name = "doctor", .help = "Looks whether this host and its services are well, and says what to do.",
     .more = "A line each: ok, warning (works, but less well) or FAULT, with the cure. Exit status 1 when there is a fault.", .fn = cmd_doctor,
     OPTS(doctor_opts)},
    {.name = "support-bundle", .args = "[FILE]", .help = "Gathers logs, state and versions in a tar file, with secrets removed.",
     .more = "Guests' consoles, user data, identities and keys are left out. FILE must not be there yet.", .max_pos = 1, .fn = cmd_support_bundle},
    {.name = "bench", .help = "Figures of this cloud.", SUBS(bench_cmds)},
    {.name = "config", .help = "The configuration.", SUBS(config_cmds)},
    {.name = "profile", .help = "The AWS profile.", SUBS(profile_cmds)},
    {.name = "aws", .args = "...", .help = "Runs the AWS CLI against this cloud, whatever its version.", .fn = cmd_aws,
     .takes_rest = true},
    {.name = "completion", .args = "bash", .help = "Prints completion for bash.",
     .more = "spx completion bash >/etc/bash_completion.d/spx", .min_pos = 1, .max_pos = 1, .fn = cmd_completion},
    {.name = "manual", .help = "Prints the manual page: spx manual | man -l -", .fn = cmd_manual},
    {.name = "version", .help = "Prints the version.", .fn = cmd_version},
};
const struct spx_cmd spx_root = {
    .name = "spx", .help = "Spinifex: a cloud for one box or a few, that speaks AWS.", SUBS(root_cmds)};
/* clang-format on */

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    return spx_main(&spx_root, argc, argv);
}
