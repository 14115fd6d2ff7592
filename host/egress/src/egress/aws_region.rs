//! The region in the name of an AWS endpoint, for the scope of a signature.

/// The suffixes of the names of AWS's endpoints.
const SUFFIXES: [&str; 5] = [".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws", ".on.aws"];

/// Returns the region for a request to `host`: the one in its name, otherwise the one `configured` with the
/// binding, otherwise the one in which AWS signs for its global endpoints. `None` for other hosts, about
/// which nothing is known.
pub(crate) fn region(host: &str, configured: Option<&str>) -> Option<String> {
    let aws = SUFFIXES.iter().find_map(|suffix| Some((host.strip_suffix(suffix)?, *suffix)));
    let named = aws.and_then(|(labels, _)| named(labels));
    let global = || match aws {
        Some((labels, ".amazonaws.com")) if last(labels) == "us-gov" => Some("us-gov-west-1".to_owned()),
        Some((_, ".amazonaws.com")) => Some("us-east-1".to_owned()),
        _ => None,
    };
    named.or(configured).map(str::to_owned).or_else(global)
}

fn last(labels: &str) -> &str {
    labels.rsplit('.').next().unwrap_or_default()
}

/// Returns the rightmost label that is a region. Labels further left are chosen by users: a bucket's name may
/// look like a region.
fn named(labels: &str) -> Option<&str> {
    if last(labels) == "s3" {
        return None;
    }
    labels.rsplit('.').find_map(|label| {
        // S3 used to write s3-us-west-2. Other labels with this prefix (s3-external-1, s3-fips) name no
        // region.
        let label = label.strip_prefix("s3-").unwrap_or(label);
        is_region(label).then_some(label)
    })
}

/// Matches `us-east-1`, `us-gov-west-1`, `eusc-de-east-1`: words, the first of 2 to 4 letters, and a number.
fn is_region(label: &str) -> bool {
    let mut parts = label.split('-');
    let (first, number) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
    let word = |word: &str| word.len() >= 2 && word.bytes().all(|b| b.is_ascii_lowercase());
    let words: Vec<&str> = parts.collect();
    (2..=4).contains(&first.len())
        && word(first)
        && (1..=2).contains(&words.len())
        && words.iter().all(|it| word(it))
        && (1..=2).contains(&number.len())
        && number.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::region;

    #[test]
    fn w32_the_region_is_in_the_name_or_in_the_binding() {
        for (host, configured, expected) in [
            ("s3.us-east-1.amazonaws.com", None, Some("us-east-1")),
            ("bucket.s3.eu-west-1.amazonaws.com", None, Some("eu-west-1")),
            ("bucket.s3.eu-west-1.amazonaws.com", Some("us-east-2"), Some("eu-west-1")),
            ("eu-west-9.s3.us-gov-west-1.amazonaws.com", None, Some("us-gov-west-1")),
            ("us-west-2.s3.amazonaws.com", None, Some("us-east-1")),
            ("bucket.s3-ap-southeast-2.amazonaws.com", None, Some("ap-southeast-2")),
            ("s3-external-1.amazonaws.com", None, Some("us-east-1")),
            ("bucket.s3.dualstack.me-central-1.amazonaws.com", None, Some("me-central-1")),
            ("s3-fips.us-west-1.amazonaws.com", None, Some("us-west-1")),
            ("123456789012.s3-control.sa-east-1.amazonaws.com", None, Some("sa-east-1")),
            ("dynamodb.cn-north-1.amazonaws.com.cn", None, Some("cn-north-1")),
            ("s3.amazonaws.com.cn", None, None),
            ("s3.amazonaws.com.cn", Some("cn-northwest-1"), Some("cn-northwest-1")),
            ("search-x.eu-central-1.es.amazonaws.com", None, Some("eu-central-1")),
            ("abc.execute-api.ca-central-1.amazonaws.com", None, Some("ca-central-1")),
            ("abc.lambda-url.ap-east-1.on.aws", None, Some("ap-east-1")),
            ("ec2.us-east-2.api.aws", None, Some("us-east-2")),
            ("s3.eusc-de-east-1.amazonaws.eu", None, Some("eusc-de-east-1")),
            ("iam.amazonaws.com", None, Some("us-east-1")),
            ("sts.amazonaws.com", Some("eu-north-1"), Some("eu-north-1")),
            ("iam.us-gov.amazonaws.com", None, Some("us-gov-west-1")),
            ("s3.amazonaws.com", None, Some("us-east-1")),
            ("minio.example", None, None),
            ("localhost", Some("us-east-1"), Some("us-east-1")),
            ("s3.eu-west-1.amazonaws.com.evil.example", None, None),
        ] {
            assert_eq!(region(host, configured).as_deref(), expected, "{host} {configured:?}");
        }
    }
}
