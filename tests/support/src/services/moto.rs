//! moto: Amazon's services as an independent implementation, which refuses what is signed wrongly.

use super::{Server, Tools, ask};

/// The actions that need no right signature, and that [`Moto::start`] uses up.
const UNSIGNED: u32 = 4;

/// The permissions of its only user.
const EVERYTHING: &str = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A\
                          %22Allow%22%2C%22Action%22%3A%22%2A%22%2C%22Resource%22%3A%22%2A%22%7D%5D%7D";

/// A running moto with one user and one bucket.
pub struct Moto {
    server: Server,
    access_key: String,
    secret_key: String,
}

impl Moto {
    /// The bucket.
    pub const BUCKET: &str = "acme-reports";

    /// Starts it. From here on every request has to be signed with the user's key.
    ///
    /// # Panics
    /// It does not start, or is not the moto that is known here.
    #[must_use]
    pub fn start(tools: &Tools) -> Self {
        let args = |port: u16| ["-H".into(), "127.0.0.1".into(), "-p".into(), port.to_string()].to_vec();
        let unsigned = UNSIGNED.to_string();
        let env = [("INITIAL_NO_AUTH_ACTION_COUNT", unsigned.as_str())];
        let server = Server::start::<String>(tools, tools.python("moto_server"), args, &env);
        let do_it = |service: &str, method: &str, path: &str, body: &str| {
            // The service is read from the signature, which is not verified yet.
            let credential = format!("Credential=x/20260101/us-east-1/{service}/aws4_request");
            let signed =
                format!("authorization: AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=0");
            let form = "content-type: application/x-www-form-urlencoded";
            let host = format!("host: {service}.us-east-1.amazonaws.com");
            let answer = ask(server.address(), method, path, &[&host, &signed, form], body);
            assert_eq!(answer.status, 200, "{method} {path} {body}: {}", answer.body);
            answer.body
        };
        let iam =
            |action: &str| do_it("iam", "POST", "/", &format!("Version=2010-05-08&UserName=tester&{action}"));
        iam("Action=CreateUser");
        iam(&format!("Action=PutUserPolicy&PolicyName=all&PolicyDocument={EVERYTHING}"));
        let key = iam("Action=CreateAccessKey");
        let part = |name: &str| {
            let after = key.split_once(&format!("<{name}>")).map(|(_, after)| after);
            let text = after.and_then(|after| after.split_once('<')).map(|(text, _)| text.to_owned());
            text.unwrap_or_else(|| panic!("no {name} in {key}"))
        };
        let (access_key, secret_key) = (part("AccessKeyId"), part("SecretAccessKey"));
        do_it("s3", "PUT", &format!("/{}", Self::BUCKET), "");
        Self { server, access_key, secret_key }
    }

    /// The process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The id of the user's key.
    #[must_use]
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// The user's key.
    #[must_use]
    pub fn secret_key(&self) -> &str {
        &self.secret_key
    }
}
