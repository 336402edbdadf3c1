use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use limiter_core::test_util::ManualClock;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SigningKey as _};
use serde_json::json;

use super::*;

/// Who signs tokens.
struct Signer {
    algorithm: Algorithm,
    key: EncodingKey,
    name: Option<&'static str>,
}

impl Signer {
    fn new(algorithm: Algorithm) -> Self {
        let made = |of| KeyPair::generate_for(of).unwrap().serialize_der();
        let key = match algorithm {
            Algorithm::ES256 => EncodingKey::from_ec_der(&made(&PKCS_ECDSA_P256_SHA256)),
            Algorithm::ES384 => EncodingKey::from_ec_der(&made(&PKCS_ECDSA_P384_SHA384)),
            _ => EncodingKey::from_secret(b"a secret of the issuer and of ours"),
        };
        Self {
            algorithm,
            key,
            name: None,
        }
    }

    fn named(self, name: &'static str) -> Self {
        Self {
            name: Some(name),
            ..self
        }
    }

    fn jwk(&self) -> Value {
        let mut key = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        key.common.key_id = self.name.map(str::to_owned);
        serde_json::to_value(key).unwrap()
    }

    fn header(&self) -> Header {
        let mut header = Header::new(self.algorithm);
        header.kid = self.name.map(str::to_owned);
        header
    }

    fn sign(&self, claims: &Value) -> String {
        jsonwebtoken::encode(&self.header(), claims, &self.key).unwrap()
    }
}

/// What one of the keys has signed.
fn payload(keys: &Keys, token: &str) -> Option<Map<String, Value>> {
    match keys.verify(token.as_bytes()) {
        Verified::By(payload) => Some(payload),
        Verified::ByUnknown | Verified::ByNone => None,
    }
}

fn keys(keys: &[Value]) -> Result<Keys, KeysError> {
    Keys::parse(json!({"keys": keys}).to_string().as_bytes())
}

fn verifier(of: &[&Signer]) -> (Verifier, Arc<ManualClock>) {
    let keys = keys(&of.iter().map(|signer| signer.jwk()).collect::<Vec<_>>()).unwrap();
    let keys = Arc::new(keys);
    let settings = Settings {
        keys: KeysAt::File(Arc::clone(&keys)),
        issuers: Vec::new(),
        audiences: Vec::new(),
    };
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(NOW * 1_000_000)));
    let claims = vec!["sub".to_owned(), "tenant".to_owned()];
    (
        Verifier::new(
            &settings,
            Source::fixed(keys),
            claims,
            Arc::<ManualClock>::clone(&clock),
        ),
        clock,
    )
}

/// In seconds.
const NOW: u64 = 1_800_000_000;

/// The subject of a request with these lines of Authorization.
fn subject_of(verifier: &Verifier, lines: &[&str], tokens: &mut Tokens) -> Result<Option<String>, Repeated> {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(AUTHORIZATION, HeaderValue::from_str(line).unwrap());
    }
    let claims = verifier.claims(&headers, tokens)?;
    Ok(claims.and_then(|claims| Some(verifier.value(&claims, "sub")?.to_owned())))
}

/// The same of one token, which is looked at twice: as new, and as known.
fn subject(verifier: &Verifier, token: &str) -> Option<String> {
    let mut tokens = Tokens::default();
    let line = format!("Bearer {token}");
    let first = subject_of(verifier, &[&line], &mut tokens).unwrap();
    assert_eq!(subject_of(verifier, &[&line], &mut tokens).unwrap(), first);
    first
}

fn alice() -> Value {
    json!({"sub": "alice", "exp": NOW + 60})
}

#[test]
fn every_kind_of_key_verifies_its_own_tokens_only() {
    let signers = [Algorithm::HS256, Algorithm::HS512, Algorithm::ES256, Algorithm::ES384].map(Signer::new);
    for signer in &signers {
        let (verifier, _) = verifier(&[signer]);
        for other in &signers {
            let expected = (other.algorithm == signer.algorithm).then(|| "alice".to_owned());
            assert_eq!(
                subject(&verifier, &other.sign(&alice())),
                expected,
                "{:?} by {:?}",
                other.algorithm,
                signer.algorithm
            );
        }
    }
    let (all, _) = verifier(&signers.iter().collect::<Vec<_>>());
    for signer in &signers {
        assert_eq!(subject(&all, &signer.sign(&alice())).as_deref(), Some("alice"));
    }
    let (verifier, _) = verifier(&[&Signer::new(Algorithm::ES256)]);
    assert_eq!(
        subject(&verifier, &signers[2].sign(&alice())),
        None,
        "another key of the kind"
    );
}

/// The key signs by another library: this one does not read its form.
#[test]
fn ed25519() {
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let key = json!({"kty": "OKP", "crv": "Ed25519", "x": base64(pair.public_key_raw())});
    let signed = base64(br#"{"alg":"EdDSA"}"#) + "." + &base64(br#"{"sub":"alice"}"#);
    let token = format!("{signed}.{}", base64(&pair.sign(signed.as_bytes()).unwrap()));
    let keys = keys(&[key]).unwrap();
    assert_eq!(payload(&keys, &token).unwrap()["sub"], "alice");
    let (signed, signature) = token.rsplit_once('.').unwrap();
    assert_eq!(payload(&keys, &format!("{signed}.{}", signature.to_lowercase())), None);
}

/// Base64url without padding (RFC 4648 §5).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let letter = |at| (0..6).fold(0, |letter, offset| letter << 1 | bit(at + offset));
    let letters = (0..8 * bytes.len())
        .step_by(6)
        .map(|at| char::from(LETTERS[usize::from(letter(at))]));
    letters.collect()
}

/// The key and the token of RFC 7515, appendix A.2.
#[test]
fn rsa_as_in_the_rfc() {
    let key = json!({
        "kty": "RSA", "e": "AQAB",
        "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
    });
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let found = payload(&keys(std::slice::from_ref(&key)).unwrap(), token).unwrap();
    assert_eq!(found["iss"], "joe");
    let mut other = key;
    other["alg"] = json!("RS512");
    assert_eq!(
        payload(&keys(&[other]).unwrap(), token),
        None,
        "a key for another algorithm"
    );
}

#[test]
fn a_public_key_is_no_secret_and_no_signature_is_none() {
    let signer = Signer::new(Algorithm::ES256);
    let (verifier, _) = verifier(&[&signer]);
    let token = signer.sign(&alice());
    let parts: Vec<&str> = token.split('.').collect();
    let [_, payload, signature] = parts[..] else { panic!() };
    // {"alg":"none"}, {"alg":"None","typ":"JWT"}
    for header in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOb25lIiwidHlwIjoiSldUIn0"] {
        for signature in ["", signature] {
            assert_eq!(subject(&verifier, &format!("{header}.{payload}.{signature}")), None);
        }
    }
    // The public key as the secret of an HMAC, in all forms that it may be had in.
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let known = Signer {
        key: EncodingKey::from_ec_der(&pair.serialize_der()),
        ..Signer::new(Algorithm::ES256)
    };
    let (verifier, _) = self::verifier(&[&known]);
    for secret in [pair.public_key_raw().to_vec(), known.jwk().to_string().into_bytes()] {
        let forged = Signer {
            key: EncodingKey::from_secret(&secret),
            ..Signer::new(Algorithm::HS256)
        };
        assert_eq!(subject(&verifier, &forged.sign(&alice())), None);
    }
    assert_eq!(subject(&verifier, &known.sign(&alice())).as_deref(), Some("alice"));
}

#[test]
fn damaged_tokens_are_none() {
    let signer = Signer::new(Algorithm::HS256);
    let (verifier, _) = verifier(&[&signer]);
    let token = signer.sign(&alice());
    for at in 0..token.len() {
        let mut damaged = token.clone().into_bytes();
        damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
        // The last letter of a part has bits that say nothing; not all are looked at.
        let damaged = String::from_utf8(damaged).unwrap();
        assert_eq!(subject(&verifier, &damaged), None, "{at} of {token}");
        subject(&verifier, &token[..at]);
    }
    for token in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        &token[..token.len() - 1],
        &format!("{token}.x"),
        &"a".repeat(LONGEST + 1),
    ] {
        assert_eq!(subject(&verifier, token), None, "{token}");
    }
    let mut critical = signer.header();
    critical.crit = Some(vec!["exp".to_owned()]);
    let critical = jsonwebtoken::encode(&critical, &alice(), &signer.key).unwrap();
    assert_eq!(subject(&verifier, &critical), None, "what must be understood is not");
}

#[test]
fn a_token_counts_in_its_time() {
    let signer = Signer::new(Algorithm::HS256);
    let (verifier, clock) = verifier(&[&signer]);
    let mut tokens = Tokens::default();
    let token = signer.sign(&json!({"sub": "alice", "nbf": NOW + 30, "exp": NOW + 60}));
    for (secs, counts) in [
        (0, false),
        (24, false),
        (25, true),
        (59, true),
        (60, false),
        (3_600, false),
    ] {
        clock.set(Timestamp::from_micros((NOW + secs) * 1_000_000));
        let subject = subject_of(&verifier, &[&format!("Bearer {token}")], &mut tokens).unwrap();
        assert_eq!(subject.is_some(), counts, "after {secs} s");
    }
    clock.set(Timestamp::from_micros(NOW * 1_000_000));
    for (claims, counts) in [
        (json!({"sub": "alice"}), true),
        (json!({"sub": "alice", "exp": NOW as f64 + 0.5}), true),
        (json!({"sub": "alice", "exp": 1e300}), true),
        (json!({"sub": "alice", "exp": (NOW + 60).to_string()}), false),
        (json!({"sub": "alice", "exp": null}), false),
        (json!({"sub": "alice", "exp": -1}), false),
        (json!({"sub": "alice", "exp": NOW}), false),
    ] {
        assert_eq!(subject(&verifier, &signer.sign(&claims)).is_some(), counts, "{claims}");
    }
}

#[test]
fn issuer_and_audience_are_the_ones_that_are_wanted() {
    let signer = Signer::new(Algorithm::HS256);
    let (mut verifier, _) = verifier(&[&signer]);
    verifier.issuers = vec!["https://id.example".to_owned(), "other".to_owned()];
    verifier.audiences = vec!["orders".to_owned()];
    for (issuer, audience, counts) in [
        (json!("https://id.example"), json!("orders"), true),
        (json!("other"), json!(["a", "orders"]), true),
        (json!("https://id.example/"), json!("orders"), false),
        (json!(["other"]), json!("orders"), false),
        (json!(null), json!("orders"), false),
        (json!("other"), json!("order"), false),
        (json!("other"), json!([]), false),
        (json!("other"), json!(null), false),
    ] {
        let token = signer.sign(&json!({"sub": "alice", "iss": issuer, "aud": audience}));
        assert_eq!(subject(&verifier, &token).is_some(), counts, "{issuer} {audience}");
    }
    assert_eq!(subject(&verifier, &signer.sign(&json!({"sub": "alice"}))), None);
}

#[test]
fn the_name_of_a_key_is_heeded() {
    let (one, two) = (
        Signer::new(Algorithm::ES256).named("one"),
        Signer::new(Algorithm::ES256).named("two"),
    );
    let (verifier, _) = verifier(&[&one, &two]);
    assert!(subject(&verifier, &one.sign(&alice())).is_some());
    assert!(subject(&verifier, &two.sign(&alice())).is_some());
    let unnamed = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &alice(), &two.key).unwrap();
    assert!(subject(&verifier, &unnamed).is_some(), "each is tried");
    let misnamed = jsonwebtoken::encode(&one.header(), &alice(), &two.key).unwrap();
    assert_eq!(subject(&verifier, &misnamed), None);
}

#[test]
fn values_of_claims() {
    let signer = Signer::new(Algorithm::HS256);
    let (verifier, _) = verifier(&[&signer]);
    for (value, expected) in [
        (json!(" alice "), Some("alice")),
        (json!(42), Some("42")),
        (json!(true), Some("true")),
        (json!(""), None),
        (json!(" \t"), None),
        (json!(1.5), None),
        (json!(null), None),
        (json!(["alice"]), None),
        (json!({"a": 1}), None),
    ] {
        assert_eq!(
            subject(&verifier, &signer.sign(&json!({"sub": value}))).as_deref(),
            expected,
            "{value}"
        );
    }
    let claims = verifier
        .look(
            signer.sign(&json!({"tenant": "t", "other": "o"})).as_bytes(),
            &verifier.source.keys(),
        )
        .claims
        .unwrap();
    assert_eq!(verifier.value(&claims, "tenant"), Some("t"));
    assert_eq!(
        (verifier.value(&claims, "sub"), verifier.value(&claims, "other")),
        (None, None)
    );
}

#[test]
fn lines_of_authorization() {
    let signer = Signer::new(Algorithm::HS256);
    let (verifier, _) = verifier(&[&signer]);
    let token = signer.sign(&alice());
    let read = |lines: &[&str]| subject_of(&verifier, lines, &mut Tokens::default());
    let found = Ok(Some("alice".to_owned()));
    assert_eq!(read(&[&format!("Bearer {token}")]), found);
    assert_eq!(read(&[&format!("bEARER   {token} ")]), found);
    assert_eq!(read(&[&format!("Bearer{token}")]), Ok(None));
    assert_eq!(read(&[&format!("Basic {token}")]), Ok(None));
    assert_eq!(read(&[&token]), Ok(None));
    assert_eq!(read(&["Bearer "]), Ok(None));
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(read(&[&format!("Bearer {token}"), "Basic x"]), Err(Repeated));
}

#[test]
fn sets_of_keys() {
    let signer = Signer::new(Algorithm::ES256);
    let with = |name: &str, value: Value| {
        let mut key = signer.jwk();
        key[name] = value;
        key
    };
    let parsed = |key: Value| keys(&[key]).map(|keys| payload(&keys, &signer.sign(&alice())).is_some());
    assert_eq!(parsed(with("use", json!("sig"))), Ok(true));
    assert_eq!(parsed(with("key_ops", json!(["verify"]))), Ok(true));
    for useless in [
        with("use", json!("enc")),
        with("key_ops", json!(["sign"])),
        with("alg", json!("HS256")),
        with("alg", json!("ES384")),
        with("crv", json!("P-521")),
        with("kty", json!("new")),
        json!("text"),
    ] {
        assert_eq!(parsed(useless.clone()), Err(KeysError::Empty), "{useless}");
        let beside = keys(&[useless, signer.jwk()]).unwrap();
        assert!(payload(&beside, &signer.sign(&alice())).is_some(), "the others serve");
    }
    assert_eq!(keys(&vec![signer.jwk(); 65]).err(), Some(KeysError::TooMany(65)));
    for text in ["", "{}", "[]", "-----BEGIN PUBLIC KEY-----"] {
        assert!(
            matches!(Keys::parse(text.as_bytes()), Err(KeysError::Form(_))),
            "{text}"
        );
    }
}
