select holdfast.request_settle(:rows::json)
