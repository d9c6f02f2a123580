select r from holdfast.request_record(:rows::json) r
