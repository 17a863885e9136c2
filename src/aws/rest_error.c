#include "aws/rest.h"

#include "aws/xml_out.h"
#include <errno.h>

/* Every code, its status, and what S3 says with it: clients show the text, some look at it.
 * Sorted by code. */
static const struct row {
    const char *code;
    int status;
    const char *msg;
} rows[] = {
    {"AccessControlListNotSupported", 400, "The bucket does not allow ACLs"},
    {"AccessDenied", 403, "Access Denied"},
    {"AccessForbidden", 403, "CORSResponse: This CORS request is not allowed."},
    {"AccessPointAlreadyOwnedByYou", 409, NULL},
    {"AccountProblem", 403, NULL},
    {"AllAccessDisabled", 403, "All access to this object has been disabled"},
    {"AmbiguousGrantByEmailAddress", 400, NULL},
    {"AuthorizationHeaderMalformed", 400, "The authorization header is malformed"},
    {"AuthorizationQueryParametersError", 400, NULL},
    {"BadDigest", 400, "The Content-MD5 you specified did not match what we received."},
    {"BadRequest", 400, "Bad Request"},
    {"BucketAlreadyExists", 409,
     "The requested bucket name is not available. The bucket namespace is shared by all users "
     "of the system. Please select a different name and try again."},
    {"BucketAlreadyOwnedByYou", 409,
     "Your previous request to create the named bucket succeeded and you already own it."},
    {"BucketHasAccessPointsAttached", 400, NULL},
    {"BucketNotEmpty", 409, "The bucket you tried to delete is not empty"},
    {"ClientTokenConflict", 409, NULL},
    {"ConditionalRequestConflict", 409,
     "The conditional request cannot succeed due to a conflicting operation against this "
     "resource."},
    {"ConnectionClosedByRequester", 400, NULL},
    {"CredentialsNotSupported", 400, "This request does not support credentials."},
    {"CrossLocationLoggingProhibited", 403, NULL},
    {"DeviceNotActiveError", 400, NULL},
    {"EncryptionTypeMismatch", 400, NULL},
    {"EndpointNotFound", 400, NULL},
    {"EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed size"},
    {"EntityTooSmall", 400, "Your proposed upload is smaller than the minimum allowed size"},
    {"ExpiredToken", 400, "The provided token has expired."},
    {"IdempotencyParameterMismatch", 400,
     "The request uses the same client token as a previous, but non-identical request."},
    {"IllegalLocationConstraintException", 400,
     "The unspecified location constraint is incompatible for the region specific endpoint "
     "this request was sent to."},
    {"IllegalVersioningConfigurationException", 400,
     "The Versioning element must be specified"},
    {"IncompleteBody", 400,
     "You did not provide the number of bytes specified by the Content-Length HTTP header"},
    {"IncorrectEndpoint", 400, NULL},
    {"IncorrectNumberOfFilesInPostRequest", 400,
     "POST requires exactly one file upload per request."},
    {"InlineDataTooLarge", 400, NULL},
    {"InsufficientStorage", 507, "There is no space left for this object."},
    {"InternalError", 500, "We encountered an internal error. Please try again."},
    {"InvalidAccessKeyId", 403,
     "The AWS Access Key Id you provided does not exist in our records."},
    {"InvalidAddressingHeader", 400, "You must specify the Anonymous role."},
    {"InvalidArgument", 400, "Invalid Argument"},
    {"InvalidBucketAclWithObjectOwnership", 400,
     "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"},
    {"InvalidBucketName", 400, "The specified bucket is not valid."},
    {"InvalidBucketOwnerAWSAccountID", 400,
     "The value of the expected bucket owner parameter must be an AWS account ID"},
    {"InvalidBucketState", 409,
     "The request is not valid with the current state of the bucket."},
    {"InvalidChunkSizeError", 400,
     "Only the last chunk is allowed to have a size less than 8192 bytes"},
    {"InvalidDigest", 400, "The Content-MD5 you specified was invalid."},
    {"InvalidEncryptionAlgorithmError", 400,
     "The encryption request that you specified is not valid. The valid value is AES256."},
    {"InvalidHostHeader", 400, NULL},
    {"InvalidHttpMethod", 400, NULL},
    {"InvalidLocationConstraint", 400, "The specified location-constraint is not valid"},
    {"InvalidObjectState", 403, "The operation is not valid for the object's storage class"},
    {"InvalidPart", 400,
     "One or more of the specified parts could not be found.  The part may not have been "
     "uploaded, or the specified entity tag may not match the part's entity tag."},
    {"InvalidPartNumber", 416, "The requested partnumber is not satisfiable"},
    {"InvalidPartOrder", 400,
     "The list of parts was not in ascending order. Parts must be ordered by part number."},
    {"InvalidPayer", 403, NULL},
    {"InvalidPolicyDocument", 400,
     "The content of the form does not meet the conditions specified in the policy document."},
    {"InvalidRange", 416, "The requested range is not satisfiable"},
    {"InvalidRedirectLocation", 400,
     "The website redirect location must have a prefix of 'http://' or 'https://' or '/'."},
    {"InvalidRegion", 403, NULL},
    {"InvalidRequest", 400, "Invalid Request"},
    {"InvalidSOAPRequest", 400, NULL},
    {"InvalidSecurity", 403, "The provided security credentials are not valid."},
    {"InvalidSessionException", 400, NULL},
    {"InvalidSignature", 400, NULL},
    {"InvalidStorageClass", 400, "The storage class you specified is not valid"},
    {"InvalidTag", 400, "The tag provided was not a valid tag."},
    {"InvalidTargetBucketForLogging", 400, NULL},
    {"InvalidToken", 400, "The provided token is malformed or otherwise invalid."},
    {"InvalidURI", 400, "Couldn't parse the specified URI."},
    {"InvalidWriteOffset", 400, NULL},
    {"KMS.DisabledException", 400, NULL},
    {"KMS.InvalidKeyUsageException", 400, NULL},
    {"KMS.KMSInvalidStateException", 400, NULL},
    {"KMS.NotFoundException", 400, NULL},
    {"KeyTooLongError", 400, "Your key is too long"},
    {"MalformedACLError", 400, NULL},
    {"MalformedPOSTRequest", 400,
     "The body of your POST request is not well-formed multipart/form-data."},
    {"MalformedPolicy", 400, NULL},
    {"MalformedTrailerError", 400,
     "The request contained trailing data that was not well-formed or did not conform to our "
     "published schema."},
    {"MalformedXML", 400,
     "The XML you provided was not well-formed or did not validate against our published "
     "schema"},
    {"MaxMessageLengthExceeded", 400, "Your request was too large."},
    {"MaxPostPreDataLengthExceededError", 400,
     "Your POST request fields preceeding the upload file was too large."},
    {"MetadataTooLarge", 400, "Your metadata headers exceed the maximum allowed metadata size"},
    {"MethodNotAllowed", 405, "The specified method is not allowed against this resource."},
    {"MissingAttachment", 400, NULL},
    {"MissingAuthenticationToken", 403, "The request was not signed."},
    {"MissingContentLength", 411, "You must provide the Content-Length HTTP header."},
    {"MissingRequestBodyError", 400, "Request Body is empty"},
    {"MissingSecurityElement", 400, NULL},
    {"MissingSecurityHeader", 400, "Your request was missing a required header"},
    {"NoLoggingStatusForKey", 400, NULL},
    {"NoSuchAccessPoint", 404, NULL},
    {"NoSuchAsyncRequest", 404, NULL},
    {"NoSuchBucket", 404, "The specified bucket does not exist"},
    {"NoSuchBucketPolicy", 404, "The bucket policy does not exist"},
    {"NoSuchCORSConfiguration", 404, "The CORS configuration does not exist"},
    {"NoSuchConfiguration", 404, "The specified configuration does not exist."},
    {"NoSuchKey", 404, "The specified key does not exist."},
    {"NoSuchLifecycleConfiguration", 404, "The lifecycle configuration does not exist"},
    {"NoSuchObjectLockConfiguration", 404,
     "The specified object does not have a ObjectLock configuration"},
    {"NoSuchPublicAccessBlockConfiguration", 404,
     "The public access block configuration was not found"},
    {"NoSuchTagSet", 404, "The TagSet does not exist"},
    {"NoSuchTagSetError", 404, "The TagSet does not exist"},
    {"NoSuchUpload", 404,
     "The specified upload does not exist. The upload ID may be invalid, or the upload may "
     "have been aborted or completed."},
    {"NoSuchVersion", 404, "The specified version does not exist."},
    {"NoSuchWebsiteConfiguration", 404,
     "The specified bucket does not have a website configuration"},
    {"NotImplemented", 501,
     "A header you provided implies functionality that is not implemented"},
    {"NotModified", 304, "Not Modified"},
    {"NotSignedUp", 403, NULL},
    {"ObjectAlreadyInActiveTierError", 403, NULL},
    {"ObjectLockConfigurationNotFoundError", 404,
     "Object Lock configuration does not exist for this bucket"},
    {"ObjectNotInActiveTierError", 403, NULL},
    {"OperationAborted", 409,
     "A conflicting conditional operation is currently in progress against this resource. "
     "Please try again."},
    {"OwnershipControlsNotFoundError", 404, "The bucket ownership controls were not found"},
    {"PermanentRedirect", 301,
     "The bucket you are attempting to access must be addressed using the specified endpoint. "
     "Please send all future requests to this endpoint."},
    {"PermanentRedirectControlError", 301, NULL},
    {"PreconditionFailed", 412,
     "At least one of the pre-conditions you specified did not hold"},
    {"Redirect", 307, NULL},
    {"ReplicationConfigurationNotFoundError", 404,
     "The replication configuration was not found"},
    {"RequestExpired", 400, NULL},
    {"RequestHeaderSectionTooLarge", 400,
     "Your request header section exceeds the maximum allowed size."},
    {"RequestIsNotMultiPartContent", 412,
     "Bucket POST must be of the enclosure-type multipart/form-data."},
    {"RequestTimeTooSkewed", 403,
     "The difference between the request time and the current time is too large."},
    {"RequestTimeout", 400,
     "Your socket connection to the server was not read from or written to within the timeout "
     "period. Idle connections will be closed."},
    {"RequestTorrentOfBucketError", 400, NULL},
    {"ResponseInterrupted", 400, NULL},
    {"RestoreAlreadyInProgress", 409, NULL},
    {"ServerSideEncryptionConfigurationNotFoundError", 404,
     "The server side encryption configuration was not found"},
    {"ServiceUnavailable", 503, "Service is unable to handle request."},
    {"SignatureDoesNotMatch", 403,
     "The request signature we calculated does not match the signature you provided. Check "
     "your key and signing method."},
    {"SlowDown", 503, "Please reduce your request rate."},
    {"TagPolicyException", 400, NULL},
    {"TemporaryRedirect", 307, NULL},
    {"TokenCodeInvalidError", 400, NULL},
    {"TokenRefreshRequired", 400, "The provided token must be refreshed."},
    {"TooManyAccessPoints", 400, NULL},
    {"TooManyBuckets", 400, "You have attempted to create more buckets than allowed"},
    {"TooManyParts", 400, NULL},
    {"UnauthorizedAccess", 403, NULL},
    {"UnauthorizedAccessError", 403, NULL},
    {"UnexpectedContent", 400, "This request does not support content"},
    {"UnresolvableGrantByEmailAddress", 400, NULL},
    {"UnsupportedArgument", 400, NULL},
    {"UnsupportedSignature", 400, NULL},
    {"UserKeyMustBeSpecified", 400,
     "The bucket POST must contain the specified field name. If it is specified, please check "
     "the order of the fields."},
    {"XAmzContentChecksumMismatch", 400, NULL},
    {"XAmzContentSHA256Mismatch", 400,
     "The provided 'x-amz-content-sha256' header does not match what was computed."},
};

static const struct row *row_of(const char *code)
{
    size_t lo = 0, hi = ARRAY_LEN(rows);
    while (code && lo < hi) {
        size_t mid = (lo + hi) / 2;
        int r = strcmp(code, rows[mid].code);
        if (r == 0) {
            return &rows[mid];
        }
        if (r < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return NULL;
}

int rest_status(const char *code)
{
    const struct row *r = row_of(code);
    return r ? r->status : 0;
}

const char *rest_message(const char *code)
{
    const struct row *r = row_of(code);
    return r ? r->msg : NULL;
}

const char *rest_code(const struct err *err)
{
    if (err->code == -EPERM && err->name && strcmp(err->name, "AccessDenied") == 0) {
        return "InternalError"; /* the store refused us, not the caller */
    }
    if (err->name && strcmp(err->name, "Unavailable") == 0) {
        return "ServiceUnavailable";
    }
    return row_of(err->name) ? err->name : "InternalError";
}

/* What S3 tells about the thing that is not there or not good, unless the handler said it. */
static void add_usual(const struct rest_target *t, const char *code, struct s3_extra *x)
{
    struct str c = str_c(code);
    if (str_has_prefixc(c, "NoSuchKey") || str_has_prefixc(c, "NoSuchVersion")) {
        rest_extra_add(x, "Key", t->key);
    } else if (str_eqc(c, "NoSuchUpload")) {
        rest_extra_add(x, "UploadId", aws_params_get(&t->query, "uploadId"));
    } else if (str_has_prefixc(c, "NoSuch") || str_has_prefixc(c, "BucketAlready") ||
               str_eqc(c, "BucketNotEmpty") || str_eqc(c, "InvalidBucketName") ||
               str_eqc(c, "ServerSideEncryptionConfigurationNotFoundError")) {
        rest_extra_add(x, "BucketName", t->bucket);
    }
    if (str_eqc(c, "NoSuchVersion")) {
        rest_extra_add(x, "VersionId", aws_params_get(&t->query, "versionId"));
    }
}

static void put_body(const struct rest_target *t, const char *code, const char *msg,
                     struct str request_id, struct str host_id, struct buf *out)
{
    struct s3_extra x = t ? t->extra : (struct s3_extra){.n = 0};
    buf_addc(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    xml_elemc(out, "Code", code);
    xml_elemc(out, "Message", msg);
    if (t) {
        add_usual(t, code, &x);
    }
    for (size_t i = 0; i < x.n; i++) {
        xml_elem(out, x.v[i].name, x.v[i].value);
    }
    if (t && t->resource.p) {
        xml_elem(out, "Resource", str_n(t->resource.p, MIN(t->resource.n, (size_t)4096)));
    }
    xml_elem(out, "RequestId", request_id);
    xml_elem(out, "HostId", host_id);
    buf_addc(out, "</Error>");
}

void rest_error(const struct err *err, const struct rest_target *t, struct str request_id,
                struct str host_id, struct rest_answer *ret)
{
    const char *code = rest_code(err), *usual = rest_message(code);
    bool is_own = err->name && strcmp(code, err->name) == 0 && err->msg[0] &&
                  strcmp(code, "InternalError") != 0;
    const char *msg = is_own ? err->msg : usual ? usual : code;
    ret->n = 0; /* what a handler meant for its success */
    ret->is_stream = false;
    buf_clear(&ret->body);
    ret->status = rest_status(code);
    rest_header(ret, "x-amz-request-id", request_id);
    rest_header(ret, "x-amz-id-2", host_id);
    if (t && t->allow) {
        rest_header(ret, "Allow", str_c(t->allow));
    }
    if (ret->status == 304 || (t && t->is_head)) {
        return;
    }
    rest_header(ret, "Content-Type", STR("application/xml"));
    put_body(t, code, msg, request_id, host_id, &ret->body);
}
